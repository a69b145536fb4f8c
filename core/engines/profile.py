"""How similarities become probabilities: fitted numbers, with where they come from.

`embedded_profile.json` is written by `python -m jobs.calibrate`, which records the data, the split and the
error before and after. The file is a part of the engine's fingerprint.
"""

import json
from dataclasses import asdict, dataclass
from functools import cache
from hashlib import sha256
from pathlib import Path
from typing import Final

PROFILE_FILE: Final = Path(__file__).with_name("embedded_profile.json")
MAX_TOKENS: Final = 256  # what the encoder was trained to read at once


@dataclass(frozen=True, slots=True)
class Profile:
    """The readout's numbers.

    Similarities are cosines. Logits are `scale * similarity + offset`.
    """

    option_scale: float  # choice and score: one logit per option
    instruction_weight: float  # how much an option's nearness to the instructions adds to that to the state
    yes_scale: float  # noul with one text to compare with
    yes_offset: float
    sides_yes_scale: float  # noul with a text for each side: what speaks for yes
    sides_no_scale: float  # what speaks against it, and is subtracted
    sides_offset: float

    def digest(self) -> str:
        """SHA-256 of the numbers; where they come from does not move an answer."""
        return sha256(json.dumps(asdict(self), sort_keys=True).encode()).hexdigest()


@cache
def read_profile() -> Profile:
    """The profile that ships with this version."""
    numbers = json.loads(PROFILE_FILE.read_bytes())["profile"]
    return Profile(**numbers)
