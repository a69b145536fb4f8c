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
from core.tables.certificate import Certificate
from core.tables.certify import Outcomes, Sample, certify
from core.tables.spending import fewest_all_right, share
from core.tables.split import distinct, input_digest, split
from core.tables.students import Answers, Seen, Student
from core.tables.table import Table
from core.tables.tails import tail_of
from core.tables.verdict import Verdict
from core.tables.watching import Tail
from core.tasks.lesson import Lesson, Trained
from core.tasks.record import CertifySettings
from core.tasks.registration import Examples, option_names

Progress = Callable[[float], None]
EncodeAll = Callable[[Sequence[str]], npt.NDArray[np.float32]]  # texts -> (n, dim)

DIGEST_BYTES = 32


@dataclass(frozen=True, slots=True)
class Held:
    """Distinct certification inputs, whatever is known of them."""

    ask: Callable[[Table], Sequence[Verdict]]  # what a table says of each
    labels: tuple[int, ...]
    digests: tuple[bytes, ...]
    n: int  # examples that have them
    effective_n: float
    kind: str = "gold"  # "agreement" where the labels are the engine's


@dataclass(frozen=True, slots=True)
class Course:
    """What students learn from, and what they are certified on, whether texts or rows."""

    task_id: str
    question: Question
    certify: CertifySettings
    look: int  # 1 for the task's first certification
    see: Callable[[Student], Seen]  # the fit inputs
    answers: Answers  # theirs
    digests: Sequence[bytes]  # theirs
    held: Held


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
    chosen, held = _divided(lesson, digests, encode_all)
    texts = [lesson.examples.texts[index] for index in chosen]
    labels = np.array([lesson.examples.labels[index] for index in chosen], np.int64)
    course = Course(
        lesson.task_id,
        lesson.question,
        lesson.certify,
        lesson.looks + 1,
        lambda student: student.see(texts),
        Answers(labels),
        [digests[index] for index in chosen],
        held,
    )
    check_enough(len(held.labels), lesson.certify, share(lesson.certify.delta, course.look, len(students)))
    return take(course, students, progress)


def take(course: Course, students: Mapping[str, Student], progress: Progress) -> list[Trained]:
    """Fit every student and certify what it learned.

    Args:
        course: what is learned.
        students: by kind; they share what this look may spend.
        progress: told the share done, 0 to 1.

    Raises:
        InvalidRequest: fit examples of fewer than two options.
    """
    delta = share(course.certify.delta, course.look, len(students))
    labels = course.answers.labels
    per_option = tuple(np.bincount(labels, minlength=course.question.size).tolist())
    trained = []
    for number, (kind, student) in enumerate(students.items()):

        def report(done: float, number: int = number) -> None:
            progress((number + done) / len(students))

        fitted = student.fit(course.see(student), course.answers, course.question.size, report)
        misses = _misses(course.question, fitted.rehearsal, labels.tolist())
        fit = _fit_bytes(course.digests, fitted.rehearsal, misses)
        table = fitted.table
        certificate, tail = _certified(course, table, course.held, delta, fit)
        trained.append(Trained(kind, table.to_bytes(), table.student, certificate, per_option, fit, tail))
    progress(1.0)
    return trained


def recertify(
    lesson: Lesson, table: Table, fit: bytes, encode_all: EncodeAll
) -> tuple[Certificate, Tail | None]:
    """Certify a table anew on `lesson.examples`, none of which it was fitted on.

    Args:
        lesson: with the new examples.
        table: as it was fitted.
        fit: as in `Trained`.
        encode_all: see `train`.

    Returns:
        The certificate, and how often the table is unsure of the new examples.

    Raises:
        InvalidRequest: too few examples, or some that the table was fitted on.
        ArtefactMismatch: `fit` is something else.
    """
    digests = _digests(lesson.examples, lesson.raw_question)
    arrays, _ = container.read(fit)
    _refuse_shared({bytes(row) for row in arrays["digests"]}, digests)
    held = _held(lesson.examples, digests, encode_all)
    delta = share(lesson.certify.delta, lesson.looks + 1, 1)
    check_enough(len(held.labels), lesson.certify, delta)
    return _certified(lesson, table, held, delta, fit)


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


def _divided(lesson: Lesson, digests: list[bytes], encode_all: EncodeAll) -> tuple[list[int], Held]:
    """Indices of the examples to fit on, and what to certify on."""
    own = lesson.certify_examples
    if own is not None:
        theirs = _digests(own, lesson.raw_question)
        _refuse_shared(set(digests), theirs, ("body", "certify", "examples"))
        return [*range(len(digests))], _held(own, theirs, encode_all)
    parts = split(digests, lesson.task_id, lesson.certify.holdout)
    held = Examples(
        tuple(lesson.examples.texts[index] for index in parts.certify),
        tuple(lesson.examples.labels[index] for index in parts.certify),
    )
    return [*parts.fit], _held(held, [digests[index] for index in parts.certify], encode_all)


def _held(examples: Examples, digests: list[bytes], encode_all: EncodeAll) -> Held:
    once = distinct(digests, examples.labels)
    texts = [examples.texts[index] for index in once.indices]
    return Held(
        lambda table: _ask(table, texts, encode_all),
        once.labels,
        tuple(digests[index] for index in once.indices),
        len(digests),
        once.effective_n,
    )


def _certified(
    about: Lesson | Course, table: Table, held: Held, delta: float, fit: bytes
) -> tuple[Certificate, Tail | None]:
    settings, question = about.certify, about.question
    verdicts = held.ask(table)
    confidences = _confidences(verdicts)
    misses = _misses(question, verdicts, held.labels)
    arrays, _ = container.read(fit)
    certificate = certify(
        Outcomes(arrays["confidence"], arrays["misses"] > settings.level_error),
        Outcomes(confidences, misses > settings.level_error),
        Sample(about.task_id, held.n, held.effective_n, held.digests),
        alpha=settings.alpha,
        delta=delta,
        level_error=settings.level_error,
        kind=held.kind,
    )
    return certificate, tail_of(confidences.tolist())


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
