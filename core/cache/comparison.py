"""How far two answers to the same questions are apart."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import orjson


@dataclass(frozen=True, slots=True)
class Difference:
    """Between two `answers` objects of the same shape."""

    equal: bool  # byte for byte
    flipped: bool  # some question has another yes or no, option or most probable level
    largest: float  # difference of any probability, 0 to 1


def difference(one: bytes, other: bytes) -> Difference:
    """Compare two `answers` objects about the same questions and options."""
    if one == other:
        return Difference(equal=True, flipped=False, largest=0.0)
    pairs = [*zip(orjson.loads(one).values(), orjson.loads(other).values(), strict=True)]
    return Difference(
        equal=False,
        flipped=any(_decided(a) != _decided(b) for a, b in pairs),
        largest=max(
            abs(p - q) for a, b in pairs for p, q in zip(_probabilities(a), _probabilities(b), strict=True)
        ),
    )


def _decided(answer: Mapping[str, Any]) -> object:
    if answer["type"] == "noul":
        return answer["noul"] >= 0.5
    if answer["type"] == "choice":
        return answer["choice"]
    levels: Mapping[str, float] = answer["probabilities"]
    return max(levels, key=levels.__getitem__)


def _probabilities(answer: Mapping[str, Any]) -> list[float]:
    return [answer["noul"]] if answer["type"] == "noul" else [*answer["probabilities"].values()]
