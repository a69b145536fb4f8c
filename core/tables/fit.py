"""Multinomial logistic regression over additive features, and its out-of-fold scores.

Only what fits a table imports this file: SciPy has no place in a process that serves.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import numpy.typing as npt
from scipy.optimize import minimize_scalar

from core.tables.descent import minimise

FOLDS: Final = 5
ITERATIONS: Final = 80
TOLERANCE: Final = 1e-5
TEMPERATURES: Final = (0.25, 4.0)

Floats = npt.NDArray[np.float32]
Indices = npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class Design:
    """What a model sees of n texts: weighted counts of features and, beside them, vectors."""

    sparse: Any  # scipy csr (n, features) float32
    dense: Floats  # (n, dim)

    def of(self, chosen: Indices) -> "Design":
        """Some of the texts."""
        return Design(self.sparse[chosen], self.dense[chosen])


@dataclass(frozen=True, slots=True)
class Linear:
    """Scores = sparse @ of_sparse + dense @ of_dense + bias."""

    of_sparse: Floats  # (features, classes)
    of_dense: Floats  # (dim, classes)
    bias: Floats  # (classes,)

    def scores(self, design: Design) -> Floats:
        """Shape (n, classes)."""
        scores: Floats = design.sparse @ self.of_sparse + design.dense @ self.of_dense + self.bias
        return scores


def fit(design: Design, targets: Floats, penalty: float, tolerance: float = TOLERANCE) -> Linear:
    """Minimise the cross-entropy with `targets` plus penalty / 2 times the sum of squared weights.

    Args:
        design: n texts.
        targets: a distribution over the classes for each, shape (n, classes).
        penalty: more keeps the weights smaller.
        tolerance: relative gain that is worth another step.
    """
    classes, dim = targets.shape[1], design.dense.shape[1]
    transposed = design.sparse.T.tocsr()
    first = design.sparse.shape[1] * classes
    second = first + dim * classes

    def model(point: Floats) -> Linear:
        return Linear(
            point[:first].reshape(-1, classes), point[first:second].reshape(-1, classes), point[second:]
        )

    def loss(point: Floats) -> tuple[float, Floats]:
        scores = model(point).scores(design)
        scores -= scores.max(1, keepdims=True)
        told = float(np.sum(scores * targets, dtype=np.float64))
        np.exp(scores, scores)
        totals = scores.sum(1, keepdims=True)
        scores /= totals
        scores -= targets
        slope = np.concatenate(
            ((transposed @ scores).ravel(), (design.dense.T @ scores).ravel(), scores.sum(0))
        )
        weights = point[:second]
        slope[:second] += np.float32(penalty) * weights
        value = float(np.sum(np.log(totals), dtype=np.float64)) - told
        return value + penalty / 2 * float(weights @ weights), slope

    return model(minimise(loss, np.zeros(second + classes, np.float32), ITERATIONS, tolerance))


def out_of_fold(
    design: Design, targets: Callable[[int], Floats], penalty: float, folds: Indices, done: Callable[[], None]
) -> Floats:
    """Scores of each text by a model that was fitted without its fold, shape (n, classes).

    Args:
        design: n texts.
        targets: what to fit to, shape (n, classes), when the labels of a fold are not to be known.
        penalty: as for `fit`.
        folds: number of each text's fold, shape (n,); at least two folds.
        done: called after each.
    """
    parts = []
    for fold in np.unique(folds).tolist():
        rest, held = np.flatnonzero(folds != fold), np.flatnonzero(folds == fold)
        parts.append((held, fit(design.of(rest), targets(fold)[rest], penalty).scores(design.of(held))))
        done()
    scores = np.empty((len(folds), parts[0][1].shape[1]), np.float32)
    for held, part in parts:
        scores[held] = part
    return scores


def smoothed(labels: Indices, classes: int, share: float) -> Floats:
    """Targets of which `share` is spread over all classes, shape (n, classes).

    Reference: Szegedy, Vanhoucke, Ioffe, Shlens and Wojna (2016), Rethinking the Inception architecture.
    """
    targets = np.full((len(labels), classes), share / classes, np.float32)
    targets[np.arange(len(labels)), labels] += np.float32(1.0 - share)
    return targets


def deal(labels: Indices, inputs: Sequence[bytes]) -> Indices:
    """Divide texts into folds: equal inputs into one, and each class over all, as evenly as that allows.

    Args:
        labels: shape (n,).
        inputs: what a text is recognised by.

    Returns:
        The number of each text's fold, shape (n,), in [0, FOLDS).
    """
    seen: dict[bytes, int] = {}
    for label, each in zip(labels.tolist(), inputs, strict=True):
        seen.setdefault(each, label)
    fold = {
        each: place % FOLDS for place, each in enumerate(sorted(seen, key=lambda each: (seen[each], each)))
    }
    return np.array([fold[each] for each in inputs], np.int64)


def temperature(scores: Floats, labels: Indices) -> float:
    """What to divide scores by so that their softmax gives the labels the highest likelihood.

    Reference: Guo, Pleiss, Sun and Weinberger (2017), On calibration of modern neural networks.
    """
    shifted = scores.astype(np.float64) - scores.max(1, keepdims=True)
    told = shifted[np.arange(len(labels)), labels]

    def loss(log_temperature: float) -> float:
        by = np.exp(-log_temperature)
        return float(np.mean(np.log(np.exp(shifted * by).sum(1)) - told * by))

    found = minimize_scalar(loss, bounds=np.log(TEMPERATURES), method="bounded")
    return float(np.exp(found.x))


def softmax(scores: npt.NDArray[np.floating[Any]]) -> npt.NDArray[np.float64]:
    """Distributions from scores, row by row."""
    weights: npt.NDArray[np.float64] = np.exp(scores.astype(np.float64) - scores.max(1, keepdims=True))
    weights /= weights.sum(1, keepdims=True)
    return weights
