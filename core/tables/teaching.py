"""A student's targets, softened by a teacher that reads more than the student can.

The teacher is a model over sentence vectors. What it says of a text counts only where it has not seen the
label: each fold is taught by a teacher that was fitted on the others. Targets for fitting without a fold must
not know that fold's labels either, not even through the teacher, or the rehearsal looks better than it is by
several points. So there is a teacher for each pair of folds, too: fitted without both, it speaks of one while
the other is held out.

Reference: Hinton, Vinyals and Dean (2015), Distilling the knowledge in a neural network.
"""

from collections.abc import Callable
from itertools import combinations
from typing import Final

import numpy as np
import numpy.typing as npt
import scipy.sparse

from core.tables.fit import FOLDS, Design, fit, smoothed, softmax

SHARE: Final = 0.7  # of a target that a teacher may fill
TEMPERATURE: Final = 2.0
SMOOTHING: Final = 0.05
PENALTY: Final = 1.0
LENGTH: Final = np.float32(4.0)  # of its vectors
TOLERANCE: Final = 1e-4
FITS: Final = FOLDS * (FOLDS + 1) // 2

Floats = npt.NDArray[np.float32]
Indices = npt.NDArray[np.int64]


class Teaching:
    """Targets by a teacher.

    Args:
        vectors: a unit vector for each text, shape (n, dim).
        labels: in [0, classes), shape (n,).
        classes: how many.
        folds: number of each text's fold, shape (n,).
        done: called after each of at most FITS fits.
    """

    def __init__(
        self, vectors: Floats, labels: Indices, classes: int, folds: Indices, done: Callable[[], None]
    ) -> None:
        empty = scipy.sparse.csr_matrix((len(labels), 0), dtype=np.float32)
        self._design = Design(empty, np.asarray(vectors, np.float32) * LENGTH)
        self._hard = smoothed(labels, classes, 0.0)
        self._soft = smoothed(labels, classes, SMOOTHING)
        self._folds = folds
        counts = np.bincount(labels, minlength=classes)[labels][:, None]
        # The fewer examples a class has, the less: of a single one the teacher cannot have learned anything.
        self._share = SHARE * (counts - 1) / (counts + 4)
        numbers = np.unique(folds).tolist()
        self._whole = self._hard.copy()
        self._without = {fold: self._hard.copy() for fold in numbers}
        for fold in numbers:
            self._teach((fold,), {fold: self._whole})
            done()
        for one, other in combinations(numbers, 2) if len(numbers) > 2 else ():
            self._teach((one, other), {one: self._without[other], other: self._without[one]})
            done()

    def targets(self, without: int | None = None) -> Floats:
        """What to fit to on all texts, or on all but one fold, shape (n, classes)."""
        said = self._whole if without is None else self._without[without]
        mixed: Floats = ((1 - self._share) * self._hard + self._share * said).astype(np.float32)
        return mixed

    def _teach(self, unseen: tuple[int, ...], into: dict[int, Floats]) -> None:
        rest = np.flatnonzero(~np.isin(self._folds, unseen))
        teacher = fit(self._design.of(rest), self._soft[rest], PENALTY, TOLERANCE)
        for fold, said in into.items():
            held = np.flatnonzero(self._folds == fold)
            said[held] = softmax(teacher.scores(self._design.of(held)) / TEMPERATURE)
