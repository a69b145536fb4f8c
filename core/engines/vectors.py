"""Texts as vectors, and the vectors that are worth keeping."""

from collections.abc import Callable
from hashlib import blake2b
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

Vector = npt.NDArray[np.float32]  # (dim,), length 1


class Encoded(NamedTuple):
    """What an encoder made of one text."""

    vector: Vector
    tokens: int  # how many were read
    truncated: bool  # True when part of the text was left out


Encode = Callable[[str], Encoded]


class KeptVectors:
    """The vectors of questions: they recur, states do not.

    Each value of `isolation` has its own, so that the time an answer takes tells no tenant what another asks.
    Texts are kept as digests: a long one takes no more memory than a short one.

    Args:
        encode: makes a vector that is not kept yet.
        max_kept: vectors to keep, about 2 kB each; the one that was not asked for the longest leaves first.
    """

    def __init__(self, encode: Encode, max_kept: int = 20_000) -> None:
        self._encode = encode
        self._max_kept = max_kept
        self._kept: dict[bytes, Encoded] = {}  # oldest use first

    def of(self, isolation: str, text: str) -> Encoded:
        """What `text` is encoded as."""
        digest = _digest(isolation, text)
        encoded = self._kept.pop(digest, None) or self._encode(text)
        self._kept[digest] = encoded
        if len(self._kept) > self._max_kept:
            del self._kept[next(iter(self._kept))]
        return encoded


def _digest(isolation: str, text: str) -> bytes:
    # The length keeps ("a", "bc") and ("ab", "c") apart.
    whole = f"{len(isolation)} {isolation}{text}"
    return blake2b(whole.encode(errors="surrogatepass"), digest_size=16).digest()
