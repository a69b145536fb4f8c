"""A fitted student as it serves: a row of whole numbers per feature, added up and made into probabilities.

A decision is: the text's features, their rows, the sum of the rows, a softmax. The rows are 16-bit numbers
with one step size, so that their sum is exact: it depends neither on the order of the features nor on threads
or the processor. (Half-precision rows take three times as long to add up; 8-bit rows with a scale each need a
product whose last bits depend on the library.)
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from hashlib import blake2b
from pathlib import Path
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from core.errors import ArtefactMismatch
from core.tables import container
from core.tables.features import FEATURES_VERSION, Features, featurize, tokens_of
from core.tables.tokens import Tokens
from core.tables.verdict import Verdict

FORMAT: Final = "precedent-table/1"


@dataclass(frozen=True, slots=True)
class Parts:
    """What a table is made of.

    The score of option k is `bias[k] + step * sum of rows[index[feature], k] / sqrt(features) + weights[k] @
    vector`; the distribution is the softmax of the scores.
    """

    kind: str  # "static" or "encoder"
    student: str  # digest of the encoder whose vectors `weights` reads; "" for static
    tokenizer: bytes  # tokenizer.json
    index: npt.NDArray[np.int32]  # (tokens + PAIR_SLOTS,) row of each feature; row 0 is all zero
    rows: npt.NDArray[np.int16]  # (rows, options)
    step: float  # value of one unit of a row
    bias: npt.NDArray[np.float64]  # (options,), -inf for options absent from the fit
    known: npt.NDArray[np.bool_]  # (tokens,) which tokens the student knows
    weights: npt.NDArray[np.float32] | None = None  # (options, dim) for encoder students


class Table:
    """Answers one question about a text, in microseconds. Never written to once made.

    Its confidence is the margin: the top probability less the next, 0 to 1. It orders errors better than the
    top probability does: one rival is worse news than many that share as much.
    """

    def __init__(self, parts: Parts, data: bytes | memoryview) -> None:
        self.kind, self.student = parts.kind, parts.student
        self.size = len(parts.bias)
        self.missing = tuple(np.flatnonzero(np.isneginf(parts.bias)).tolist())
        self.digest = blake2b(data, digest_size=16).hexdigest()
        self._data = data
        self._tokens = Tokens(parts.tokenizer)
        self._index, self._rows, self._step = parts.index, parts.rows, parts.step
        self._bias, self._known, self._weights = parts.bias, parts.known, parts.weights

    @classmethod
    def of(cls, data: bytes | memoryview) -> "Table":
        """The table that these bytes are.

        Raises:
            ArtefactMismatch: bytes of another kind, or of another version of the features.
        """
        arrays, metadata = container.read(data)
        return cls(_parts(arrays, metadata), data)

    @classmethod
    def open(cls, path: Path) -> "Table":
        """The table in a file, memory-mapped: the processes of a node share one copy of it."""
        return cls.of(np.memmap(path, np.uint8, mode="r").data)

    @classmethod
    def made_of(cls, parts: Parts) -> "Table":
        """The table of freshly fitted parts."""
        return cls.of(_bytes(parts))

    def to_bytes(self) -> bytes:
        """The table, whole: what `of` reads."""
        return bytes(self._data)

    def decide(self, text: str, vector: npt.NDArray[np.float32] | None = None) -> Verdict:
        """The verdict on a text.

        Args:
            text: the state's text.
            vector: for encoder tables, its sentence vector, shape (dim,).
        """
        return self.judge(self.see(text), vector)

    def see(self, text: str) -> Features:
        """What this table reads of a text; see `featurize`."""
        return featurize(self._tokens.ids(text), len(self._known))

    def judge(self, features: Features, vector: npt.NDArray[np.float32] | None = None) -> Verdict:
        """The verdict on a text of which no more is known than its features.

        Args:
            features: as `see` gives them, or sorted.
            vector: for encoder tables, the text's sentence vector, shape (dim,).
        """
        scores = self.scores(features, vector)
        first = int(scores.argmax())
        top = scores[first]
        weights = np.exp(scores - top)
        weights /= np.add.reduce(weights)
        probabilities: list[float] = weights.tolist()
        if not known_enough(self._known, features):
            return Verdict(tuple(probabilities), math.nan)
        scores[first] = -math.inf
        return Verdict(tuple(probabilities), probabilities[first] - probabilities[int(scores.argmax())])

    def scores(
        self, features: Features, vector: npt.NDArray[np.float32] | None = None
    ) -> npt.NDArray[np.float64]:
        """Scores before the softmax, shape (options,)."""
        total = np.add.reduce(self._rows.take(self._index.take(features), 0), 0, np.int32)
        scores: npt.NDArray[np.float64] = total * (self._step / math.sqrt(max(1, len(features))))
        scores += self._bias
        if self._weights is not None:
            if vector is None:
                raise AssertionError("an encoder table was asked without a vector. This is a bug.")
            scores += np.vecdot(self._weights, vector)
        return scores


def known_enough(known: npt.NDArray[np.bool_], features: Features) -> bool:
    """Whether a student may judge a text at all: it has tokens, and knows at least half of them.

    Args:
        known: by token id, whether it occurred in a fit example, shape (tokens,).
        features: the text's, as `featurize` gives them or sorted.
    """
    ids = tokens_of(features)
    n = len(ids)
    return n > 0 and 2 * int(np.count_nonzero(known.take(ids))) >= n


def _bytes(parts: Parts) -> bytes:
    arrays: dict[str, npt.NDArray[Any]] = {
        "tokenizer": np.frombuffer(parts.tokenizer, np.uint8),
        "index": parts.index,
        "rows": parts.rows,
        "bias": parts.bias,
        "known": parts.known.view(np.uint8),
    }
    if parts.weights is not None:
        arrays["weights"] = parts.weights
    metadata = {
        "format": FORMAT,
        "features": FEATURES_VERSION,
        "kind": parts.kind,
        "student": parts.student,
        "step": parts.step.hex(),
    }
    return container.write(arrays, metadata)


def _parts(arrays: Mapping[str, npt.NDArray[Any]], metadata: Mapping[str, str]) -> Parts:
    for name, expected in (("format", FORMAT), ("features", FEATURES_VERSION)):
        if metadata.get(name) != expected:
            raise ArtefactMismatch(
                f"the {name} of a table", expected, metadata.get(name, "none"), "fit the task again"
            )
    return Parts(
        kind=metadata["kind"],
        student=metadata["student"],
        tokenizer=arrays["tokenizer"].tobytes(),
        index=arrays["index"],
        rows=arrays["rows"],
        step=float.fromhex(metadata["step"]),
        bias=arrays["bias"],
        known=arrays["known"].view(np.bool_),
        weights=arrays.get("weights"),
    )
