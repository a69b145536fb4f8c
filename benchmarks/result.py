"""One measured number, held against a floor or a peer that was measured in the same run."""

import operator
import statistics
from collections.abc import Sequence
from typing import Any, Final

_RELATIONS: Final = {"<=": operator.le, ">=": operator.ge}


def result(
    name: str,
    values: Sequence[float],
    unit: str,
    floors: Sequence[float] | None = None,
    target: str | None = None,
) -> dict[str, Any]:
    """A row of the results file.

    Args:
        name: what was measured.
        values: repeated measurements; the median is reported.
        unit: of `values` and `floors`.
        floors: the floor or peer, measured beside each value: a slow moment of the machine meets both.
        target: for the median ratio of value to floor, or for the value without floors: "<= 1.5".

    Returns:
        The row. `spread` is the smallest and largest ratio, or value without floors.
    """
    ratios = [value / floor for value, floor in zip(values, floors, strict=True)] if floors else None
    judged = list(values) if ratios is None else ratios
    middle = statistics.median(judged)
    return {
        "name": name,
        "value": statistics.median(values),
        "unit": unit,
        "floor": statistics.median(floors) if floors else None,
        "ratio": None if ratios is None else middle,
        "target": target,
        "ok": None if target is None else meets(middle, target),
        "spread": [min(judged), max(judged)],
    }


def meets(number: float, target: str) -> bool:
    """Whether `number` is what `target` asks for.

    Raises:
        ValueError: a target that is no relation with a number.
    """
    relation, _, limit = target.partition(" ")
    if relation not in _RELATIONS:
        raise ValueError(f"a target reads like '<= 1.5' or '>= 0.85', not {target!r}")
    return bool(_RELATIONS[relation](number, float(limit)))
