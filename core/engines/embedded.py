"""The embedded engine: a small sentence encoder on the CPU, compared with the texts of the options.

Each text runs through the encoder by itself. Quantised to int8, the encoder scales its activations by the
largest one in the batch, so that a text's vector would depend on the texts beside it; and on CPU a batch is
hardly faster (docs/decisions/0004-embedded-execution.md has the measurements).
"""

import math
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from threading import Lock
from typing import Any

import numpy as np
import numpy.typing as npt
import onnxruntime
from tokenizers import Tokenizer

from core.contract.questions import Choice, Noul, Question, Score
from core.engines.artefact import (
    MODEL_FILE,
    NAME,
    TOKENIZER_FILE,
    fingerprint_of,
    read_manifest,
    verify,
)
from core.engines.base import Item, Limits, Reading
from core.engines.profile import MAX_TOKENS, read_profile
from core.engines.texts import option_texts, sides

Vector = npt.NDArray[np.float32]  # (384,), length 1
Known = Callable[[str], Vector]

MAX_CACHED_TEXTS = 20_000  # 1.5 kB each
CHARS_PER_TOKEN = (
    16  # a token of plain text is shorter than this; what lies far inside a long text is never read
)
ONE_QUESTION_TOKENS = 8  # what a question adds to a batch when the vectors of its options are known


class EmbeddedModel:
    """A `BatchModel` over the artefact that `python -m jobs.models` prepares.

    Args:
        folder: the artefact.
        threads: CPU threads that one text may use.

    Raises:
        SettingsError: no artefact there.
        ArtefactMismatch: its files are not those that its manifest names.
    """

    batch_invariant = True
    limits = Limits(MAX_TOKENS)
    name = NAME

    def __init__(self, folder: Path, threads: int = 1) -> None:
        manifest = read_manifest(folder)
        verify(folder, manifest)
        self.fingerprint = fingerprint_of(manifest)
        self._encoder = Encoder(folder, threads)
        self._profile = read_profile()

    def cost(self, item: Item) -> int:
        """About how many tokens `item` adds to a batch."""
        return min(MAX_TOKENS, len(item.state) // 4) + ONE_QUESTION_TOKENS

    def read(self, items: Sequence[Item]) -> list[Reading | Exception]:
        """Answer a batch, in order; a state shared by several items is encoded once."""
        states: dict[tuple[str, str], tuple[Vector, int, bool]] = {}
        readings: list[Reading | Exception] = []
        for item in items:
            whose = item.isolation, item.state
            if whose not in states:
                states[whose] = self._encoder.encode(item.state)
            vector, tokens, truncated = states[whose]
            known = partial(self._encoder.known, item.isolation)
            readings.append(Reading(self._distribution(vector, item.question, known), tokens, truncated))
        return readings

    def _distribution(self, state: Vector, question: Question, known: Known) -> tuple[float, ...]:
        if isinstance(question, Noul):
            yes = _sigmoid(self._yes_logit(state, question, known))
            return yes, 1.0 - yes
        return self._over_options(state, question, known)

    def _over_options(self, state: Vector, question: Choice | Score, known: Known) -> tuple[float, ...]:
        options = np.stack([known(text) for text in option_texts(question)])
        similarity = options @ state
        if question.instructions and not question.instructions.isspace():
            asked = known(question.instructions)
            similarity = similarity + self._profile.instruction_weight * (options @ asked)
        return _softmax(self._profile.option_scale * similarity.astype(np.float64))

    def _yes_logit(self, state: Vector, question: Noul, known: Known) -> float:
        profile, near = self._profile, sides(question)
        yes = None if near.yes is None else float(known(near.yes) @ state)
        no = None if near.no is None else float(known(near.no) @ state)
        if yes is not None and no is not None:
            return profile.sides_scale * (yes - no)
        if yes is not None:
            return profile.yes_scale * yes + profile.yes_offset
        assert no is not None  # the contract refuses a noul that says nothing
        return -(profile.yes_scale * no + profile.yes_offset)


class Encoder:
    """Text to vector, with the vectors of questions kept: they recur, states do not."""

    def __init__(self, folder: Path, threads: int) -> None:
        self._tokenizer = Tokenizer.from_file(str(folder / TOKENIZER_FILE))
        self._tokenizer.no_padding()
        self._tokenizer.no_truncation()
        self._session = onnxruntime.InferenceSession(
            str(folder / MODEL_FILE), _options(threads), providers=["CPUExecutionProvider"]
        )
        self._known: dict[tuple[str, str], Vector] = {}
        self._lock = Lock()

    def encode(self, text: str) -> tuple[Vector, int, bool]:
        """The vector of `text`, how many tokens were read, and whether some were left out."""
        ids, truncated = self._ids(text)
        batch = np.array([ids], dtype=np.int64)
        feed = {"input_ids": batch, "attention_mask": np.ones_like(batch)}
        vector: Vector = self._session.run(None, feed)[0][0]
        return vector, len(ids), truncated

    def known(self, isolation: str, text: str) -> Vector:
        """The vector of a text that is likely to come again; kept apart for each value of `isolation`."""
        whose = isolation, text
        with self._lock:
            vector = self._known.pop(whose, None)
            if vector is not None:
                self._known[whose] = vector  # to the young end
                return vector
        vector = self.encode(text)[0]
        with self._lock:
            self._known[whose] = vector
            if len(self._known) > MAX_CACHED_TEXTS:
                del self._known[next(iter(self._known))]
        return vector

    def _ids(self, text: str) -> tuple[list[int], bool]:
        """Token ids of a text; of a long one, both ends."""
        near = MAX_TOKENS * CHARS_PER_TOKEN
        cut = len(text) > 2 * near
        if cut:
            text = f"{text[:near]} {text[-near:]}"
        ids: list[int] = self._tokenizer.encode(text).ids
        if len(ids) <= MAX_TOKENS:
            return ids, cut
        head = MAX_TOKENS // 2
        return ids[:head] + ids[head - MAX_TOKENS :], True


def _options(threads: int) -> Any:  # noqa: ANN401  the runtime ships no types
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = threads
    options.inter_op_num_threads = 1
    # Waiting threads that spin take the CPU from the Routers beside them.
    options.add_session_config_entry("session.intra_op.allow_spinning", "0")
    return options


def _softmax(logits: npt.NDArray[np.float64]) -> tuple[float, ...]:
    weights = np.exp(logits - logits.max())
    return tuple((weights / weights.sum()).tolist())


def _sigmoid(logit: float) -> float:
    # Both branches keep the exponent negative, so that neither overflows.
    if logit >= 0:
        return 1.0 / (1.0 + math.exp(-logit))
    return math.exp(logit) / (1.0 + math.exp(logit))
