"""What tables learn from: requests that were answered, as a student sees them. No text is among it."""

from base64 import b64decode, b64encode
from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from hashlib import blake2b
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import orjson

from core.contract.strict_json import encode as as_json
from core.tables.features import Features
from core.tasks.record import TaskRecord, revision_of
from core.tasks.stores.rows import Numbered, Series

SMALLEST_SHARE: Final = 5e-4  # of an answer; less is left out
DECIMALS: Final = 4
LABELS: Final = "labels"


class Drawn(StrEnum):
    """How a request came to be among the rows."""

    TRAFFIC = "traffic"  # no table answers, so every request is here
    EXPLORE = "explore"  # drawn by lot, from all that the table might have answered
    PASSED = "passed"  # the table passed it on
    SPOT_CHECK = "spot_check"  # the table answered it, and the engine was asked as well

    @property
    def is_uniform(self) -> bool:
        """Whether rows drawn like this stand for all requests, so that they may certify."""
        return self in (Drawn.TRAFFIC, Drawn.EXPLORE)

    @property
    def series(self) -> str:
        """The name of the series that keeps them: what may certify is counted by itself."""
        return "uniform" if self.is_uniform else "chosen"


SERIES: Final = ("uniform", "chosen", LABELS)  # all there are of a task


@dataclass(frozen=True, slots=True)
class Row:
    """One request with the engine's answer."""

    drawn: Drawn
    features: Features  # sorted: what a student sees, in no order from which a text could be read
    answer: tuple[float, ...]  # the engine's distribution, in the question's order; small shares are left out
    top: int  # index of its most probable option
    input: bytes  # digest by which repeats are known, see core.tables.split
    about: str  # see `about`
    tokenizer: str  # digest of the tokenizer behind the features
    at: float  # Unix seconds
    vector: npt.NDArray[np.float32] | None = None  # sentence vector, for students that need one

    def encode(self) -> bytes:
        """For the store."""
        fields: dict[str, Any] = {
            "drawn": self.drawn.value,
            "features": self.features.tolist(),
            "options": len(self.answer),
            "answer": [
                [index, round(share, DECIMALS)]
                for index, share in enumerate(self.answer)
                if share >= SMALLEST_SHARE
            ],
            "top": self.top,
            "input": b64encode(self.input).decode(),
            "about": self.about,
            "tokenizer": self.tokenizer,
            "at": self.at,
        }
        if self.vector is not None:
            fields["vector"] = b64encode(self.vector.astype("<f4").tobytes()).decode()
        return orjson.dumps(fields)


def decode(value: bytes) -> Row | None:
    """The row that a store returned; None for one that this version cannot read."""
    try:
        fields = orjson.loads(value)
        answer = [0.0] * fields["options"]
        for index, share in fields["answer"]:
            answer[index] = share
        total, vector = sum(answer), fields.get("vector")
        return Row(
            drawn=Drawn(fields["drawn"]),
            features=np.array(fields["features"], np.int64),
            answer=tuple(share / total for share in answer),
            top=int(fields["top"]),
            input=b64decode(fields["input"]),
            about=fields["about"],
            tokenizer=fields["tokenizer"],
            at=float(fields["at"]),
            vector=None if vector is None else np.frombuffer(b64decode(vector), "<f4"),
        )
    except (orjson.JSONDecodeError, KeyError, IndexError, TypeError, ValueError, ZeroDivisionError):
        return None


def about(record: TaskRecord, fingerprint: str) -> str:
    """What rows are about: rows about another question, context or engine are no rows of this one.

    Args:
        record: the task.
        fingerprint: of the engine that answers.
    """
    parts = as_json(dict(record.question)), revision_of(record.context).encode(), fingerprint.encode()
    digest = blake2b(digest_size=8)
    for part in parts:
        digest.update(b"%d " % len(part) + part)
    return digest.hexdigest()


def is_drawn(key: bytes, purpose: str, share: float) -> bool:
    """Whether a request is among those drawn by lot; every process draws the same.

    Args:
        key: of the request.
        purpose: other purposes draw others.
        share: of all requests, 0 to 1.
    """
    if share <= 0.0:
        return False
    lot = blake2b(purpose.encode(), key=key[:64], digest_size=8).digest()
    return int.from_bytes(lot) < share * 2.0**64


def series_of(record: TaskRecord, name: str) -> Series:
    """One of the `SERIES` of a task."""
    return Series(record.tenant, record.id, name)


def encode_label(option: int) -> bytes:
    """What somebody says is the right option of a row, for the store."""
    return b"%d" % option


def decode_labels(rows: Sequence[Numbered]) -> dict[str, int]:
    """Labels by row id."""
    return {row.id: int(row.value) for row in rows}
