"""Students: each turns labelled texts into a table, with out-of-fold verdicts on the same texts."""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final, Protocol

import numpy as np
import numpy.typing as npt

from core.errors import InvalidRequest, Problem
from core.tables import compiling
from core.tables.compiling import Additive, compare, compiled
from core.tables.counting import count
from core.tables.features import Features, tokens_of
from core.tables.fit import (
    FOLDS,
    Design,
    Linear,
    deal,
    fit,
    out_of_fold,
    smoothed,
    softmax,
    temperature,
)
from core.tables.static_vectors import StaticVectors
from core.tables.table import Table, known_enough
from core.tables.teaching import FITS, Teaching
from core.tables.tokens import Tokens
from core.tables.verdict import Verdict

PENALTY: Final = 0.1
SMOOTHING: Final = 0.1  # of a target that is spread over all options where there is no teacher
STATIC_SCALE: Final = 1.5  # root mean square length of a text's summed token vectors, beside 1 for its counts
ENCODER_SCALE: Final = 3.0  # length of a sentence vector, beside 1 for the counts

Progress = Callable[[float], None]
Encode = Callable[[Sequence[str]], npt.NDArray[np.float32]]
Labels = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float32]


@dataclass(frozen=True, slots=True)
class Seen:
    """What a student sees of n texts."""

    features: Sequence[Features]
    vectors: Floats | None = None  # sentence vectors, shape (n, dim)


@dataclass(frozen=True, slots=True)
class Answers:
    """What n texts were answered."""

    labels: Labels  # index of each one's option, shape (n,)
    soft: Floats | None = None  # what to learn instead: distributions, shape (n, options)


@dataclass(frozen=True, slots=True)
class Fitted:
    """A table, and what its student said of each fit example when it had not seen it."""

    table: Table
    rehearsal: list[Verdict]  # in the order of the examples


class Student(Protocol):
    """Learns one question."""

    kind: str  # "static" or "encoder"

    def see(self, texts: Sequence[str]) -> Seen:
        """What it learns from of each text."""
        ...

    def fit(self, seen: Seen, answers: Answers, options: int, progress: Progress) -> Fitted:
        """Learn.

        Args:
            seen: n texts, as `see` gives them; the features may be sorted.
            answers: one for each.
            options: how many the question has; some may have no example.
            progress: told the share done, 0 to 1.

        Raises:
            InvalidRequest: examples of fewer than two options, or of a single text.
        """
        ...


class StaticStudent:
    """Token vectors and hashed pairs of tokens; no neural network when it serves.

    Args:
        vectors: of every token.
        teacher: texts to sentence vectors, (n, dim) float32. Where there is one, what a model over its
            vectors says out of fold softens the targets: on BANKING77 that raises the certified share by two
            points, and nothing of the teacher is needed to serve.
    """

    kind = "static"

    def __init__(self, vectors: StaticVectors, teacher: Encode | None = None) -> None:
        self._vectors, self._teacher = vectors, teacher

    def see(self, texts: Sequence[str]) -> Seen:
        """Tokens and pairs, and the teacher's vectors if there is one."""
        taught = None if self._teacher is None else self._teacher(texts)
        return Seen(Tokens(self._vectors.tokenizer_json).features(texts), taught)

    def fit(self, seen: Seen, answers: Answers, options: int, progress: Progress) -> Fitted:
        """Learn from features; sentence vectors only soften the targets."""
        lesson = _Lesson(seen, answers, options, self._vectors.tokenizer_json)
        vectors = np.asarray(self._vectors.vectors, np.float32)
        dense = lesson.raw[:, : len(vectors)] @ vectors
        length = float(np.sqrt(np.square(dense).sum(1).mean()))
        scale = np.float32(STATIC_SCALE / max(1e-9, length))
        model, scores, by = lesson.learn(dense * scale, lesson.vectors, progress)
        # The vectors give a row to tokens that no example has, so every token has one.
        pairs = lesson.learned >= len(vectors)
        rows: Floats = vectors @ (model.of_dense * scale)
        rows[lesson.learned[~pairs]] += lesson.rows(model)[~pairs]
        additive = Additive(
            np.concatenate((np.arange(len(vectors)), lesson.learned[pairs])),
            np.concatenate((rows, lesson.rows(model)[pairs])) / np.float32(by),
            model.bias / np.float32(by),
            None,
        )
        table = lesson.compile(additive, self.kind, "")
        return Fitted(table, lesson.rehearsal(scores / by))


class EncoderStudent:
    """A sentence encoder's vector beside hashed tokens and pairs.

    Args:
        encode: texts to unit vectors, (n, dim) float32.
        encoder_digest: of everything in the encoder that can move a vector.
        tokenizer_json: for the hashed tokens.
    """

    kind = "encoder"

    def __init__(self, encode: Encode, encoder_digest: str, tokenizer_json: bytes) -> None:
        self._encode, self._digest, self._tokenizer = encode, encoder_digest, tokenizer_json

    def see(self, texts: Sequence[str]) -> Seen:
        """Tokens, pairs and the sentence vector."""
        return Seen(Tokens(self._tokenizer).features(texts), self._encode(texts))

    def fit(self, seen: Seen, answers: Answers, options: int, progress: Progress) -> Fitted:
        """Learn from features and sentence vectors."""
        lesson = _Lesson(seen, answers, options, self._tokenizer)
        vectors = lesson.vectors
        if vectors is None:
            raise AssertionError("an encoder student was given no vectors. This is a bug.")
        model, scores, by = lesson.learn(vectors * np.float32(ENCODER_SCALE), vectors, progress)
        additive = Additive(
            lesson.learned,
            lesson.rows(model) / np.float32(by),
            model.bias / np.float32(by),
            model.of_dense.T * np.float32(ENCODER_SCALE / by),
        )
        table = lesson.compile(additive, self.kind, self._digest)
        return Fitted(table, lesson.rehearsal(scores / by))


class _Lesson:
    """Examples in an order of their own, so that the one in which they came does not matter."""

    def __init__(self, seen: Seen, answers: Answers, options: int, tokenizer: bytes) -> None:
        inputs, labels = [np.sort(each).tobytes() for each in seen.features], np.asarray(answers.labels)
        softly = [b""] * len(inputs) if answers.soft is None else [row.tobytes() for row in answers.soft]
        self._order = sorted(range(len(inputs)), key=lambda i: (inputs[i], labels[i], softly[i]))
        self._features = [seen.features[i] for i in self._order]
        self._inputs = [inputs[i] for i in self._order]
        self.vectors = None if seen.vectors is None else np.asarray(seen.vectors, np.float32)[self._order]
        self._present, classes = np.unique(labels[self._order], return_inverse=True)
        self._labels = classes.astype(np.int64)
        self._soft = None if answers.soft is None else _among(self._present, answers.soft[self._order])
        self._options, self._tokenizer = options, tokenizer
        tokens = Tokens(tokenizer)
        _refuse(len(self._present), len(set(self._inputs)))
        self._counted = count(self._features, tokens.size)
        self.raw, self.learned = self._counted.raw, self._counted.learned
        self._known = np.zeros(tokens.size, np.bool_)
        self._known[np.concatenate([tokens_of(each) for each in self._features])] = True
        if tokens.unknown_id >= 0:
            self._known[tokens.unknown_id] = False

    def learn(self, dense: Floats, taught: Floats | None, progress: Progress) -> tuple[Linear, Floats, float]:
        """The model, its out-of-fold scores, and the temperature that calibrates them.

        Args:
            dense: vectors beside the counts, shape (n, dim).
            taught: a teacher's vectors, shape (n, dim of its own); not needed where answers are soft.
            progress: told the share done.
        """
        folds, classes = deal(self._labels, self._inputs), len(self._present)
        steps = _Steps(FOLDS + 1 + (0 if taught is None or self._soft is not None else FITS), progress)
        design = Design(self._counted.matrix(), np.asarray(dense, np.float32))
        if taught is None or self._soft is not None:
            plain = smoothed(self._labels, classes, SMOOTHING) if self._soft is None else self._soft
            scores = out_of_fold(design, lambda _: plain, PENALTY, folds, steps.done)
            model = fit(design, plain, PENALTY)
        else:
            teaching = Teaching(taught, self._labels, classes, folds, steps.done)
            scores = out_of_fold(design, teaching.targets, PENALTY, folds, steps.done)
            model = fit(design, teaching.targets(), PENALTY)
        progress(1.0)
        return model, scores, temperature(scores, self._labels)

    def rows(self, model: Linear) -> Floats:
        """Rows for the counts as they are, shape (learned, classes)."""
        return model.of_sparse * self._counted.weights[:, None]

    def compile(self, model: Additive, kind: str, student: str) -> Table:
        """The table, held against the model on every example."""
        origin = compiling.Student(kind, student, self._tokenizer, self._known)
        table = compiled(model, origin, self._present, self._options)
        fitted = self.raw[:, model.columns] @ model.rows + model.bias
        vectors = None if model.weights is None else self.vectors
        if model.weights is not None and vectors is not None:
            fitted += vectors @ model.weights.T
        compare(table, fitted, self._present, self._features, vectors)
        return table

    def rehearsal(self, scores: Floats) -> list[Verdict]:
        """Verdicts from out-of-fold scores, in the order in which the examples came."""
        whole = np.zeros((len(scores), self._options))
        whole[:, self._present] = softmax(scores)
        verdicts = [Verdict((), math.nan)] * len(scores)
        for place, features, row in zip(self._order, self._features, whole.tolist(), strict=True):
            second, first = sorted(row)[-2:]
            confidence = first - second if known_enough(self._known, features) else math.nan
            verdicts[place] = Verdict(tuple(row), confidence)
        return verdicts


class _Steps:
    """Counts fits and tells how far it is."""

    def __init__(self, steps: int, progress: Progress) -> None:
        self._steps, self._progress, self._done = steps, progress, 0

    def done(self) -> None:
        """One more is done."""
        self._done += 1
        self._progress(self._done / self._steps)


def _among(present: Labels, soft: Floats) -> Floats:
    """Distributions over the classes that have examples, shape (n, classes)."""
    kept = np.asarray(soft, np.float32)[:, present]
    among: Floats = kept / kept.sum(1, keepdims=True)
    return among


def _refuse(options: int, inputs: int) -> None:
    if options < 2:
        problem = "all examples have the same answer; a table needs examples of at least two options"
    elif inputs < 2:
        problem = "all examples have the same text; a table needs at least two"
    else:
        return
    raise InvalidRequest((Problem(("body", "examples"), problem, "too_few_options"),))
