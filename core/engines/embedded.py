"""The embedded engine: a small sentence encoder on the CPU, compared with the texts of the options.

Each text runs through the encoder by itself. Quantised to int8, the encoder scales its activations by the
largest one in the batch, so that a text's vector would depend on the texts beside it; and on CPU a batch is
hardly faster (docs/decisions/0004-embedded-execution.md has the measurements).
"""

import math
from collections.abc import Callable, Sequence
from pathlib import Path
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
from core.engines.profile import MAX_TOKENS, Profile, read_profile
from core.engines.texts import option_texts, said, sides
from core.engines.vectors import Encode, Encoded, KeptVectors, Vector

Known = Callable[[str], Vector]

CHARS_PER_TOKEN = (
    16  # a token of plain text is shorter than this; what lies far inside a long text is never read
)
ONE_QUESTION_TOKENS = 8  # what a question adds to a batch when the vectors of its options are known


class EmbeddedModel:
    """A `BatchModel` that compares the vector of a state with those of the texts of a question.

    Args:
        encode: text to vector.
        profile: the readout's numbers.
        fingerprint: digest of everything in the two that can move an answer.
    """

    batch_invariant = True
    limits = Limits(MAX_TOKENS)
    name = NAME

    def __init__(self, encode: Encode, profile: Profile, fingerprint: str) -> None:
        self.fingerprint = fingerprint
        self._encode = encode
        self._kept = KeptVectors(encode)
        self._profile = profile

    @classmethod
    def load(cls, folder: Path, threads: int = 1) -> "EmbeddedModel":
        """The model over the artefact that `python -m jobs.models` prepares.

        Args:
            folder: the artefact.
            threads: CPU threads that one text may use.

        Raises:
            SettingsError: no artefact there that this version can read.
            ArtefactMismatch: its files are not those that its manifest names.
        """
        manifest, profile = read_manifest(folder), read_profile()
        verify(folder, manifest)
        return cls(Encoder(folder, threads).encode, profile, fingerprint_of(manifest, profile))

    def cost(self, item: Item) -> int:
        """About how many tokens `item` adds to a batch."""
        return min(MAX_TOKENS, len(item.state) // 4) + ONE_QUESTION_TOKENS

    def read(self, items: Sequence[Item]) -> list[Reading | Exception]:
        """Answer a batch, in order; a state shared by several items is encoded once."""
        states: dict[tuple[str, str], Encoded] = {}
        readings: list[Reading | Exception] = []
        for item in items:
            whose = item.isolation, item.state
            if whose not in states:
                states[whose] = self._encode(item.state)
            readings.append(self._reading(item, states[whose]))
        return readings

    def _reading(self, item: Item, state: Encoded) -> Reading:
        texts = [state]

        def known(text: str) -> Vector:
            texts.append(self._kept.of(item.isolation, text))
            return texts[-1].vector

        distribution = self._distribution(state.vector, item.question, known)
        return Reading(distribution, state.tokens, any(text.truncated for text in texts))

    def _distribution(self, state: Vector, question: Question, known: Known) -> tuple[float, ...]:
        if isinstance(question, Noul):
            yes = _sigmoid(self._yes_logit(state, question, known))
            return yes, 1.0 - yes
        return self._over_options(state, question, known)

    def _over_options(self, state: Vector, question: Choice | Score, known: Known) -> tuple[float, ...]:
        options = np.stack([known(text) for text in option_texts(question)])
        similarity = _similarities(options, state)
        instructions = said(question.instructions)
        if instructions is not None:
            asked = _similarities(options, known(instructions))
            similarity = similarity + self._profile.instruction_weight * asked
        return _softmax(self._profile.option_scale * similarity)

    def _yes_logit(self, state: Vector, question: Noul, known: Known) -> float:
        profile, near = self._profile, sides(question)
        yes = None if near.yes is None else float(known(near.yes) @ state)
        no = None if near.no is None else float(known(near.no) @ state)
        if yes is not None and no is not None:
            # Not their difference: people describe a no by denying the yes, and to an encoder "not about
            # refunds" is as near to refunds as "about refunds".
            return profile.sides_yes_scale * yes - profile.sides_no_scale * no + profile.sides_offset
        if yes is not None:
            return profile.yes_scale * yes + profile.yes_offset
        assert no is not None  # the contract refuses a noul that says nothing
        return -(profile.yes_scale * no + profile.yes_offset)


class Encoder:
    """Text to vector: the tokenizer and the graph of an artefact."""

    def __init__(self, folder: Path, threads: int) -> None:
        self._tokenizer = Tokenizer.from_file(str(folder / TOKENIZER_FILE))
        self._tokenizer.no_padding()
        self._tokenizer.no_truncation()
        self._session = onnxruntime.InferenceSession(
            str(folder / MODEL_FILE), _options(threads), providers=["CPUExecutionProvider"]
        )

    def encode(self, text: str) -> Encoded:
        """The vector of `text`; of a long one, of its both ends."""
        ids, truncated = self._ids(text)
        batch = np.array([ids], dtype=np.int64)
        feed = {"input_ids": batch, "attention_mask": np.ones_like(batch)}
        return Encoded(self._session.run(None, feed)[0][0], len(ids), truncated)

    def _ids(self, text: str) -> tuple[list[int], bool]:
        """Token ids of a text; of a long one, both ends."""
        near = MAX_TOKENS * CHARS_PER_TOKEN
        if len(text) > 2 * near:
            text = " ".join(text.split())  # blanks are no tokens, and must not stand for an end
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


def _similarities(options: npt.NDArray[np.float32], other: Vector) -> npt.NDArray[np.float64]:
    # One product per option: in a product of matrices the last bits depend on an option's place.
    similarities: npt.NDArray[np.float32] = np.vecdot(options, other)
    return similarities.astype(np.float64)


def _softmax(logits: npt.NDArray[np.float64]) -> tuple[float, ...]:
    weights = np.exp(logits - logits.max())
    return tuple((weights / weights.sum()).tolist())


def _sigmoid(logit: float) -> float:
    # Both branches keep the exponent negative, so that neither overflows.
    if logit >= 0:
        return 1.0 / (1.0 + math.exp(-logit))
    return math.exp(logit) / (1.0 + math.exp(logit))
