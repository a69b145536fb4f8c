"""From a fitted student to the table that serves, and the proof that the two agree."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
import numpy.typing as npt

from core.tables.features import PAIR_SLOTS, Features
from core.tables.table import Parts, Table

PARITY: Final = 0.01
"""How far a score may be from the fitted one: 0.01 moves a probability by a quarter of a point at most."""

Floats = npt.NDArray[np.float32]


@dataclass(frozen=True, slots=True)
class Additive:
    """A fitted student: the sum of its features' rows over the root of their number, a bias, and a product.

    Classes are the options that have examples.
    """

    columns: npt.NDArray[np.int64]  # (features,) which features have a row, ascending
    rows: Floats  # (features, classes)
    bias: Floats  # (classes,)
    weights: Floats | None  # (classes, dim) for a sentence vector


@dataclass(frozen=True, slots=True)
class Student:
    """What a table has to say about where it comes from."""

    kind: str
    digest: str  # of what it needs beside its bytes
    tokenizer: bytes
    known: npt.NDArray[np.bool_]  # (tokens,) which tokens occurred in the fit


def compiled(model: Additive, student: Student, present: npt.NDArray[np.int64], options: int) -> Table:
    """Round the rows to 16 bits and leave out those that are zero.

    Args:
        model: what was fitted.
        student: where from.
        present: the option of each class, shape (classes,), ascending.
        options: how many the question has.
    """
    step = float(np.abs(model.rows).max(initial=0.0)) / np.iinfo(np.int16).max or 1.0
    numbers = np.rint(model.rows / step).astype(np.int16)
    used = np.flatnonzero(numbers.any(1))
    index = np.zeros(len(student.known) + PAIR_SLOTS, np.int32)
    index[model.columns[used]] = np.arange(1, len(used) + 1)
    rows = np.zeros((len(used) + 1, options), np.int16)
    rows[1:, present] = numbers[used]
    bias = np.full(options, -np.inf)
    bias[present] = model.bias
    weights = None
    if model.weights is not None:
        weights = np.zeros((options, model.weights.shape[1]), np.float32)
        weights[present] = model.weights
    return Table.made_of(
        Parts(
            kind=student.kind,
            student=student.digest,
            tokenizer=student.tokenizer,
            index=index,
            rows=rows,
            step=step,
            bias=bias,
            known=student.known,
            weights=weights,
        )
    )


def compare(
    table: Table,
    fitted: Floats,
    present: npt.NDArray[np.int64],
    features: Sequence[Features],
    vectors: Floats | None,
) -> None:
    """Hold the table's scores against the fitted ones, text by text.

    Args:
        table: compiled.
        fitted: scores of n texts, shape (n, classes).
        present: the option of each class.
        features: of each text.
        vectors: each text's sentence vector, shape (n, dim), for encoder students.

    Raises:
        AssertionError: one is more than PARITY away.
    """
    for place, (seen, expected) in enumerate(zip(features, fitted, strict=True)):
        vector = None if vectors is None else vectors[place]
        off = float(np.abs(table.scores(seen, vector)[present] - expected).max())
        if not off <= PARITY:
            raise AssertionError(
                f"a compiled score is {off:g} from the fitted one and may be {PARITY} away. This is a bug."
            )
