"""From a sentence encoder's vectors of single tokens to vectors whose mean stands for a text.

Mean pooling of principal components with frequent tokens held down. On BANKING77 and CLINC150 neither the
embeddings that the encoder starts from, nor those beside these, nor more components, nor another weighting
certified a larger share of answers by more than a rerun does (docs/decisions/0008-fast-tables.md).
"""

from collections.abc import Sequence
from typing import Final

import numpy as np
import numpy.typing as npt

COMPONENTS: Final = 256
SMOOTHING: Final = 1e-4

Raw = npt.NDArray[np.float32]


def distil(vectors: Raw, tokens: Sequence[str]) -> npt.NDArray[np.float16]:
    """Weighted principal components of token vectors.

    Args:
        vectors: the encoder's vector of each token by itself, shape (n, dim), dim >= COMPONENTS.
        tokens: their spellings, the most frequent first, as BERT's vocabulary has them.

    Returns:
        Shape (n, COMPONENTS). Zero for tokens that are no text, such as [CLS].

    Reference: Arora, Liang and Ma (2017), A simple but tough-to-beat baseline for sentence embeddings, for
    the weight a / (a + p); p, the share of a token in texts, is taken to fall as 1 / rank (Zipf's law).
    """
    is_text = np.array([not _is_mark(token) for token in tokens])
    components = _components(vectors.astype(np.float64), is_text)
    share = 1.0 / np.arange(2, len(tokens) + 2)
    share /= share.sum()
    weights = np.where(is_text, SMOOTHING / (SMOOTHING + share), 0.0)
    return (components * weights[:, None]).astype(np.float16)


def _components(vectors: npt.NDArray[np.float64], is_text: npt.NDArray[np.bool_]) -> npt.NDArray[np.float64]:
    centred = vectors - vectors[is_text].mean(0)
    _, axes = np.linalg.eigh(np.cov(centred[is_text].T))
    axes = axes[:, ::-1][:, :COMPONENTS]
    # An axis has no sign of its own, and libraries disagree about it.
    axes *= np.sign(axes[np.abs(axes).argmax(0), np.arange(axes.shape[1])])
    components: npt.NDArray[np.float64] = centred @ axes
    return components


def _is_mark(token: str) -> bool:
    return len(token) > 2 and token.startswith("[") and token.endswith("]")
