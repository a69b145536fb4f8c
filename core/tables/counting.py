"""The features of many texts as one sparse matrix, weighted by how telling each is."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import scipy.sparse

from core.tables.features import PAIR_SLOTS, Features

SEEN_OFTEN: Final = 2  # texts that a pair must occur in to be learned from; half of all pairs occur in one

Floats = npt.NDArray[np.float32]


@dataclass(frozen=True, slots=True)
class Counted:
    """The features of n texts.

    A text's counts are divided by the square root of how many features it has. What is learned from is
    multiplied by the feature's weight, too: the square root of log((1 + n) / (1 + texts that have it)),
    scaled so that texts have length 1 in the root mean square.
    """

    raw: Any  # csr (n, size + PAIR_SLOTS) float32: counts over the root of the number of features
    learned: npt.NDArray[np.int64]  # (features,) which columns of `raw` are learned from, ascending
    weights: Floats  # (features,) of each

    def matrix(self) -> Any:  # noqa: ANN401  SciPy ships no types
        """Weighted counts of what is learned from, csr (n, features) float32."""
        return self.raw[:, self.learned].multiply(self.weights).tocsr().astype(np.float32)


def count(features: Sequence[Features], size: int) -> Counted:
    """Count the features of texts.

    Args:
        features: of each text.
        size: how many tokens there are.
    """
    lengths = np.array([len(each) for each in features], np.int64)
    raw = scipy.sparse.csr_matrix(
        (
            np.repeat(1.0 / np.sqrt(np.maximum(1, lengths)), lengths).astype(np.float32),
            np.concatenate(features),
            np.concatenate(([0], np.cumsum(lengths))),
        ),
        shape=(len(features), size + PAIR_SLOTS),
    )
    raw.sum_duplicates()
    texts = np.bincount(raw.indices, minlength=raw.shape[1])
    least = np.where(np.arange(raw.shape[1]) < size, 1, SEEN_OFTEN)
    learned = np.flatnonzero(texts >= least)
    weights = np.sqrt(np.log((1 + len(features)) / (1 + texts[learned])))
    squares = float(raw[:, learned].multiply(weights).power(2).sum())
    weights /= max(1e-9, np.sqrt(squares / len(features)))
    return Counted(raw, learned, weights.astype(np.float32))
