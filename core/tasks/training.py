"""From labelled examples to certified tables: split, fit, ask, certify. Runs for seconds to minutes."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from core.contract.answers import top_option
from core.contract.questions import Question, Score
from core.contract.strict_json import encode
from core.errors import InvalidRequest, Problem
from core.tables import container
from core.tables.bounds import fewest_all_right
from core.tables.certificate import Certificate
from core.tables.certify import Outcomes, Sample, certify
from core.tables.spending import share
from core.tables.split import distinct, input_digest, split
from core.tables.students import Answers, Student
from core.tables.table import Table
from core.tables.verdict import Verdict
from core.tasks.lesson import Lesson, Trained
from core.tasks.record import CertifySettings
from core.tasks.registration import Examples, option_names

Progress = Callable[[float], None]
EncodeAll = Callable[[Sequence[str]], npt.NDArray[np.float32]]  # texts -> (n, dim)

DIGEST_BYTES = 32


@dataclass(frozen=True, slots=True)
class _Sample:
    """Distinct certification inputs."""

    texts: tuple[str, ...]
    labels: tuple[int, ...]
    digests: tuple[bytes, ...]
    n: int
    effective_n: float


def train(
    lesson: Lesson, students: Mapping[str, Student], encode_all: EncodeAll, progress: Progress
) -> list[Trained]:
    """Fit and certify every student; they share what this look at the task may spend.

    Args:
        lesson: what is to be learned.
        students: by kind.
        encode_all: sentence vectors for the tables that need them.
        progress: told the share done, 0 to 1.

    Raises:
        InvalidRequest: too few examples to certify, an input on both sides, or fewer than two options.
    """
    digests = _digests(lesson.examples, lesson.raw_question)
    chosen, sample = _divided(lesson, digests)
    delta = share(lesson.certify.delta, lesson.looks + 1, len(students))
    check_enough(len(sample.labels), lesson.certify, delta)
    texts = [lesson.examples.texts[index] for index in chosen]
    labels = np.array([lesson.examples.labels[index] for index in chosen], np.int64)
    per_option = tuple(np.bincount(labels, minlength=lesson.question.size).tolist())
    trained = []
    for number, (kind, student) in enumerate(students.items()):

        def report(done: float, number: int = number) -> None:
            progress((number + done) / len(students))

        fitted = student.fit(student.see(texts), Answers(labels), lesson.question.size, report)
        misses = _misses(lesson.question, fitted.rehearsal, labels.tolist())
        fit = _fit_bytes([digests[index] for index in chosen], fitted.rehearsal, misses)
        certificate = _certified(lesson, fitted.table, sample, encode_all, delta, fit)
        trained.append(
            Trained(kind, fitted.table.to_bytes(), fitted.table.student, certificate, per_option, fit)
        )
    progress(1.0)
    return trained


def recertify(lesson: Lesson, table: Table, fit: bytes, encode_all: EncodeAll) -> Certificate:
    """Certify a table anew on `lesson.examples`, none of which it was fitted on.

    Args:
        lesson: with the new examples.
        table: as it was fitted.
        fit: as in `Trained`.
        encode_all: see `train`.

    Raises:
        InvalidRequest: too few examples, or some that the table was fitted on.
        ArtefactMismatch: `fit` is something else.
    """
    digests = _digests(lesson.examples, lesson.raw_question)
    arrays, _ = container.read(fit)
    _refuse_shared({bytes(row) for row in arrays["digests"]}, digests)
    sample = _sample(lesson.examples, digests)
    delta = share(lesson.certify.delta, lesson.looks + 1, 1)
    check_enough(len(sample.labels), lesson.certify, delta)
    return _certified(lesson, table, sample, encode_all, delta, fit)


def check_enough(distinct_inputs: int, settings: CertifySettings, delta: float) -> None:
    """Refuse to certify on fewer inputs than any certificate takes.

    Raises:
        InvalidRequest: says which bound applied, both numbers, and how many more are needed.
    """
    floor = fewest_all_right(settings.alpha, delta)
    asked = settings.min_examples or 0
    needed = max(floor, asked)
    if distinct_inputs >= needed:
        return
    why = (
        f"min_examples asks for {asked}"
        if asked > floor
        else f"alpha {settings.alpha:g} at delta {delta:.3g} takes {floor} with every answer right"
    )
    missing = needed - distinct_inputs
    more = int(np.ceil(missing / settings.holdout))
    msg = (
        f"{distinct_inputs} distinct inputs are left to certify on, and {why}: {missing} more are needed "
        f"there, about {more} more labelled examples at holdout {settings.holdout:g}"
    )
    raise InvalidRequest((Problem(("body", "examples"), msg, "too_short"),))


def _divided(lesson: Lesson, digests: list[bytes]) -> tuple[list[int], _Sample]:
    """Indices of the examples to fit on, and what to certify on."""
    own = lesson.certify_examples
    if own is not None:
        theirs = _digests(own, lesson.raw_question)
        _refuse_shared(set(digests), theirs, ("body", "certify", "examples"))
        return [*range(len(digests))], _sample(own, theirs)
    parts = split(digests, lesson.task_id, lesson.certify.holdout)
    held = Examples(
        tuple(lesson.examples.texts[index] for index in parts.certify),
        tuple(lesson.examples.labels[index] for index in parts.certify),
    )
    return [*parts.fit], _sample(held, [digests[index] for index in parts.certify])


def _sample(examples: Examples, digests: list[bytes]) -> _Sample:
    once = distinct(digests, examples.labels)
    return _Sample(
        tuple(examples.texts[index] for index in once.indices),
        once.labels,
        tuple(digests[index] for index in once.indices),
        len(digests),
        once.effective_n,
    )


def _certified(
    lesson: Lesson, table: Table, sample: _Sample, encode_all: EncodeAll, delta: float, fit: bytes
) -> Certificate:
    settings = lesson.certify
    verdicts = _ask(table, sample.texts, encode_all)
    misses = _misses(lesson.question, verdicts, sample.labels)
    arrays, _ = container.read(fit)
    return certify(
        Outcomes(arrays["confidence"], arrays["misses"] > settings.level_error),
        Outcomes(_confidences(verdicts), misses > settings.level_error),
        Sample(lesson.task_id, sample.n, sample.effective_n, sample.digests),
        alpha=settings.alpha,
        delta=delta,
        level_error=settings.level_error,
    )


def _ask(table: Table, texts: Sequence[str], encode_all: EncodeAll) -> list[Verdict]:
    if table.kind == "static":
        return [table.decide(text) for text in texts]
    return [table.decide(text, vector) for text, vector in zip(texts, encode_all(texts), strict=True)]


def _misses(question: Question, verdicts: Sequence[Verdict], labels: Sequence[int]) -> npt.NDArray[np.int16]:
    """By how many levels each answer is off; for questions without levels, whether it is wrong."""
    names = option_names(question)
    tops = [top_option(names, verdict.probabilities) for verdict in verdicts]
    off = np.abs(np.array(tops, np.int16) - np.array(labels, np.int16))
    return off if isinstance(question, Score) else (off > 0).astype(np.int16)


def _confidences(verdicts: Sequence[Verdict]) -> npt.NDArray[np.float64]:
    return np.array([verdict.confidence for verdict in verdicts], np.float64)


def _fit_bytes(
    digests: Sequence[bytes], rehearsal: Sequence[Verdict], misses: npt.NDArray[np.int16]
) -> bytes:
    arrays: dict[str, npt.NDArray[Any]] = {
        "digests": np.frombuffer(b"".join(digests), np.uint8).reshape(-1, DIGEST_BYTES),
        "confidence": _confidences(rehearsal),
        "misses": misses,
    }
    return container.write(arrays, {})


def _digests(examples: Examples, raw_question: Mapping[str, Any]) -> list[bytes]:
    question = encode(dict(raw_question)).decode()
    return [input_digest(text, question) for text in examples.texts]


def _refuse_shared(
    fit: set[bytes], digests: Sequence[bytes], at: tuple[str, ...] = ("body", "examples")
) -> None:
    shared = sum(digest in fit for digest in digests)
    if shared:
        msg = f"{shared} of them are inputs that the table is fitted on; leave those out"
        raise InvalidRequest((Problem(at, msg, "value_error"),))
