"""What a student sees of a text: its tokens, and its neighbouring pairs of tokens, as numbers.

One function serves fitting, certifying and serving, so that the three cannot differ.
"""

from typing import Final

import numpy as np
import numpy.typing as npt

FEATURES_VERSION: Final = "tokens and hashed neighbours/1"
"""Goes into a table's digest; anything below that moves a feature must change it."""
PAIR_BITS: Final = 18
PAIR_SLOTS: Final = 1 << PAIR_BITS

_SPREAD: Final = np.int64(0x9E3779B1)  # odd, so that no two tokens before one other share a slot
_MASK: Final = np.int64(PAIR_SLOTS - 1)

Features = npt.NDArray[np.int64]  # (2n - 1,) for n tokens, or (0,)


def featurize(ids: npt.NDArray[np.integer], size: int) -> Features:
    """Numbers of a text's features, each as often as it occurs.

    Args:
        ids: token ids, shape (n,), each in [0, size).
        size: tokens there are.

    Returns:
        Shape (2n - 1,), or (0,) for no tokens: the tokens, then for each pair of neighbours
        `size` + a slot in [0, PAIR_SLOTS). Pairs may share a slot.
    """
    n = len(ids)
    features = np.empty(2 * n - 1 if n else 0, np.int64)
    features[:n] = ids
    if n > 1:
        pairs = features[n:]
        np.multiply(features[: n - 1], _SPREAD, pairs)
        pairs += features[1:n]
        pairs &= _MASK
        pairs += size
    return features


def tokens_of(features: Features) -> Features:
    """The token ids among features, which come first: as `featurize` gives them, or sorted."""
    return features[: (len(features) + 1) // 2]
