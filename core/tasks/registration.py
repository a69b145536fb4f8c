"""What a caller asks for when it registers a task, certifies it again, or brings one from elsewhere."""

import math
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Final, TypeVar

from core.contract.questions import Choice, Noul, Question, QuestionReader, Score, asked_as, text_of
from core.contract.strict_json import encode
from core.errors import InvalidRequest, Problem
from core.tables.spending import fewest_all_right, share
from core.tasks.record import CertifySettings, FastTableSettings, TaskRecord

MAX_ID_CHARS: Final = 128
MAX_CONTEXT_CHARS: Final = 100_000
KINDS: Final = ("static", "encoder", "auto")
ENOUGH_PROBLEMS: Final = 20

LEAST_ALPHA: Final = 1e-6  # less takes more examples than anybody has
MAX_COUNT: Final = 1_000_000_000
FEWEST_ROWS: Final = 100  # less neither teaches nor proves anything
ROW_ID: Final = re.compile(r"[0-9a-f]{32}")
FAST_TABLE: Final = (
    "kind",
    "static_model",
    "min_saving",
    "mode",
    "learn",
    "explore",
    "spot_check",
    "min_rows",
    "on_revoke",
)

Loc = tuple[str | int, ...]
T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Examples:
    """Labelled states of one question."""

    texts: tuple[str, ...]
    labels: tuple[int, ...]  # index of the right option, as in the question's distribution


@dataclass(frozen=True, slots=True)
class Registration:
    """A valid body of `POST /v1/tasks`."""

    id: str
    question_id: str
    raw_question: dict[str, Any]
    question: Question
    context: str | None
    examples: Examples
    certify: CertifySettings | None
    certify_examples: Examples | None  # certify on these instead of a part of the others
    fast_table: FastTableSettings | None


@dataclass(frozen=True, slots=True)
class Recertification:
    """A valid body of `POST /v1/tasks/{id}/certify`."""

    examples: Examples
    certify: CertifySettings


def read_registration(
    value: Any,  # noqa: ANN401
    max_examples: int = 100_000,
    max_state_chars: int = 200_000,
    max_rows: int = 50_000,
) -> Registration:
    """Read a body.

    Args:
        value: any JSON value.
        max_examples: in either list.
        max_state_chars: of one example.
        max_rows: that a task may wait for.

    Raises:
        InvalidRequest: what is wrong with it, at least the first `ENOUGH_PROBLEMS`.
    """
    reader = _Reader(max_examples, max_state_chars)
    if _learns(value):
        return _learner(reader, value, max_rows)
    body = reader.members(("body",), value, ("id", "examples"), ("context", "certify", "fast_table"))
    task_id = reader.task_id(body.get("id"))
    context = reader.context(body.get("context"))
    asked = reader.first_question(body.get("examples"))
    reader.stop_if_wrong()
    assert asked is not None  # it would have been a problem
    examples = reader.examples(("body", "examples"), body["examples"], asked)
    certify, own = reader.certify(body.get("certify", {}), asked)
    fast_table = reader.fast_table(body.get("fast_table", True))
    reader.stop_if_wrong()
    return Registration(
        task_id, asked.id, asked.raw, asked.question, context, examples, certify, own, fast_table
    )


def _learns(value: Any) -> bool:  # noqa: ANN401  any JSON value
    """Whether a body is meant for a task that learns from traffic."""
    if not isinstance(value, dict):
        return False
    fast_table = value.get("fast_table")
    if isinstance(fast_table, dict) and fast_table.get("learn", False) is not False:
        return True
    return "questions" in value and "examples" not in value


def _learner(reader: "_Reader", value: dict[str, Any], max_rows: int) -> Registration:
    """A task that learns from traffic: a question, and no examples."""
    at: Loc = ("body", "fast_table", "learn")
    wanted = value.get("fast_table")
    if not isinstance(wanted, dict) or wanted.get("learn") is not True:
        msg = "must be true for a task that has questions and no examples"
        reader.refuse(at, msg, "value_error")
        reader.stop_if_wrong()
    if "examples" in value:
        msg = "are not for a task that learns from traffic; leave them out, or leave out fast_table.learn"
        reader.refuse(("body", "examples"), msg, "value_error")
        reader.stop_if_wrong()
    body = reader.members(("body",), value, ("id", "questions"), ("context", "certify", "fast_table"))
    task_id = reader.task_id(body.get("id"))
    context = reader.context(body.get("context"))
    asked = reader.question(("body",), body)
    reader.stop_if_wrong()
    assert asked is not None  # it would have been a problem
    certify, own = reader.certify(body.get("certify", {}), asked)
    if certify is None or own is not None:
        what = "be left out or an object" if certify is None else "hold no examples"
        reader.refuse(("body", "certify"), f"must {what} for a task that learns from traffic", "value_error")
    fast_table = reader.fast_table(body["fast_table"])
    if fast_table is not None and fast_table.kind == "auto":
        msg = "must be static or encoder for a task that learns from traffic: rows are made for one student"
        reader.refuse(("body", "fast_table", "kind"), msg, "value_error")
    reader.stop_if_wrong()
    assert certify is not None  # or it would have been refused
    assert fast_table is not None  # it says `learn`
    reader.rows_that_can_prove(certify, fast_table, max_rows)
    reader.stop_if_wrong()
    nothing = Examples((), ())
    return Registration(
        task_id, asked.id, asked.raw, asked.question, context, nothing, certify, None, fast_table
    )


def read_labels(value: Any, record: TaskRecord, max_labels: int) -> dict[str, int]:  # noqa: ANN401
    """Read the body of `POST /v1/tasks/{id}/labels`: `{"labels": [{"row", "answer"}]}`.

    Returns:
        The option of each row.

    Raises:
        InvalidRequest: what is wrong with it.
    """
    reader = _Reader(max_labels, 0)
    body = reader.members(("body",), value, ("labels",), ())
    reader.stop_if_wrong()
    asked = reader.asked_of(record.question_id, record.question)
    at: Loc = ("body", "labels")
    named = {name: index for index, name in enumerate(option_names(asked.question))}
    labels: dict[str, int] = {}
    for index, one in enumerate(reader.array(at, body["labels"], max_labels)):
        given = reader.members((*at, index), one, ("row", "answer"), ())
        row = reader.row((*at, index, "row"), given.get("row"))
        label = reader.label((*at, index, "answer"), given, asked.question, named)
        if row is not None and label is not None and labels.setdefault(row, label) != label:
            msg = f"{row} is labelled twice in this request, and otherwise before"
            reader.refuse((*at, index, "row"), msg, "value_error")
        if len(reader.problems) >= ENOUGH_PROBLEMS:
            break
    reader.stop_if_wrong()
    return labels


def read_rows(value: Any, max_rows: int) -> list[str]:  # noqa: ANN401  any JSON value
    """Read the body of `POST /v1/tasks/{id}/rows/erase`: `{"rows": [ids]}`.

    Raises:
        InvalidRequest: what is wrong with it.
    """
    reader = _Reader(max_rows, 0)
    body = reader.members(("body",), value, ("rows",), ())
    reader.stop_if_wrong()
    at: Loc = ("body", "rows")
    given = [
        reader.row((*at, index), one) for index, one in enumerate(reader.array(at, body["rows"], max_rows))
    ]
    reader.stop_if_wrong()
    return [row for row in given if row is not None]


def read_version(value: Any) -> int:  # noqa: ANN401  any JSON value
    """Read the body of `POST /v1/tasks/{id}/fast_table/rollback`: `{"version": number}`.

    Raises:
        InvalidRequest: what is wrong with it.
    """
    reader = _Reader(0, 0)
    body = reader.members(("body",), value, ("version",), ())
    version = body.get("version")
    if "version" in body and (not isinstance(version, int) or isinstance(version, bool)):
        reader.refuse(("body", "version"), "must be the number of a version of the table", "int_type")
    reader.stop_if_wrong()
    return int(str(version))


def read_recertification(
    value: Any,  # noqa: ANN401
    record: TaskRecord,
    max_examples: int = 100_000,
    max_state_chars: int = 200_000,
) -> Recertification:
    """Read a body; what it leaves out stays as the task has it.

    Raises:
        InvalidRequest: what is wrong with it, or the task was registered without certification.
    """
    reader = _Reader(max_examples, max_state_chars)
    if record.certify is None or record.table is None:
        what = "without certification" if record.certify is None else "without a table"
        reader.refuse(("body",), f"the task was registered {what}; register it again", "value_error")
    reader.stop_if_wrong()
    body = reader.members(("body",), value, ("examples",), ("alpha", "delta", "min_examples", "level_error"))
    asked = reader.asked_of(record.question_id, record.question)
    settings = {name: member for name, member in body.items() if name != "examples"}
    certify = reader.certify_settings(("body",), settings, asked, record.certify or CertifySettings())
    examples = reader.examples(("body", "examples"), body.get("examples"), asked)
    reader.stop_if_wrong()
    return Recertification(examples, certify)


def option_names(question: Question) -> tuple[str, ...]:
    """The options of a question as answers name them."""
    if isinstance(question, Choice):
        return question.options
    return ("yes", "no") if isinstance(question, Noul) else tuple(map(str, range(question.size)))


@dataclass(frozen=True, slots=True)
class _Asked:
    id: str
    raw: dict[str, Any]
    question: Question
    same: bytes | None  # equal for the same question


class _Reader:
    """Collects problems instead of stopping at the first."""

    def __init__(self, max_examples: int, max_state_chars: int) -> None:
        self._max_examples, self._max_state_chars = max_examples, max_state_chars
        self.problems: list[Problem] = []

    def refuse(self, loc: Loc, msg: str, kind: str) -> None:
        self.problems.append(Problem(loc, msg, kind))

    def stop_if_wrong(self) -> None:
        if self.problems:
            raise InvalidRequest(tuple(self.problems))

    def members(
        self,
        at: Loc,
        value: Any,  # noqa: ANN401
        needed: Iterable[str],
        allowed: Iterable[str],
    ) -> dict[str, Any]:
        if not isinstance(value, dict):
            self.refuse(at, "must be an object", "dict_type")
            raise InvalidRequest(tuple(self.problems))
        for name in needed:
            if name not in value:
                self.refuse((*at, name), "Field required", "missing")
        known = (*needed, *allowed)
        for name in value:
            if name not in known:
                self.refuse((*at, name), f"is not known here; use {', '.join(known)}", "extra_forbidden")
        return value

    def task_id(self, value: Any) -> str:  # noqa: ANN401
        at = ("body", "id")
        if isinstance(value, int) and not isinstance(value, bool):
            value = str(value)
        if not isinstance(value, str):
            self.refuse(at, "must be a string", "string_type")
            return ""
        if not 1 <= len(value) <= MAX_ID_CHARS or not value.isprintable() or "/" in value or "@" in value:
            wanted = f"must be 1 to {MAX_ID_CHARS} printable characters without / and @"
            self.refuse(at, f"{wanted}, and has {len(value)}", "value_error")
        elif value in (".", ".."):
            self.refuse(at, "must not be . or .., which mean something else in an address", "value_error")
        return value

    def context(self, value: Any) -> str | None:  # noqa: ANN401
        if value is None or (isinstance(value, str) and not value):
            return None
        if not isinstance(value, str):
            self.refuse(("body", "context"), "must be a string", "string_type")
        elif len(value) > MAX_CONTEXT_CHARS:
            msg = f"has {len(value)} characters and {MAX_CONTEXT_CHARS} are allowed"
            self.refuse(("body", "context"), msg, "string_too_long")
        return value if isinstance(value, str) else None

    def first_question(self, examples: Any) -> _Asked | None:  # noqa: ANN401
        at = ("body", "examples")
        if not isinstance(examples, list):
            self.refuse(at, "must be an array of {request, answer}", "list_type")
            return None
        if not examples:
            self.refuse(at, "at least one example is needed and there are none", "too_short")
            return None
        if len(examples) > self._max_examples:
            msg = f"there are {len(examples)} and {self._max_examples} are allowed"
            self.refuse(at, msg, "too_long")
            return None
        return self._question(at, 0, examples[0])

    def asked_of(self, question_id: str, raw: Mapping[str, Any]) -> _Asked:
        question = QuestionReader().read(question_id, dict(raw))
        assert question is not None  # it was valid when it was registered
        return _Asked(question_id, dict(raw), question, asked_as(dict(raw)))

    def array(self, at: Loc, value: Any, most: int) -> list[Any]:  # noqa: ANN401
        if not isinstance(value, list) or not value:
            self.refuse(at, "must be an array with at least one", "list_type")
        elif len(value) > most:
            self.refuse(at, f"there are {len(value)} and {most} are allowed", "too_long")
        else:
            return value
        return []

    def row(self, at: Loc, value: Any) -> str | None:  # noqa: ANN401
        if isinstance(value, str) and ROW_ID.fullmatch(value):
            return value
        self.refuse(at, "must be the `x_precedent.key` of an answer, 32 hex digits", "value_error")
        return None

    def _question(self, at: Loc, index: int, example: Any) -> _Asked | None:  # noqa: ANN401
        request = example.get("request") if isinstance(example, dict) else None
        return self.question((*at, index, "request"), request)

    def question(self, where: Loc, request: Any) -> _Asked | None:  # noqa: ANN401
        questions = request.get("questions") if isinstance(request, dict) else None
        if not isinstance(questions, dict) or len(questions) != 1:
            count = len(questions) if isinstance(questions, dict) else "none"
            self.refuse(
                (*where, "questions"), f"exactly one question is needed, there is {count}", "value_error"
            )
            return None
        ((question_id, raw),) = questions.items()
        reader = QuestionReader()
        question = reader.read(question_id, raw)
        for problem in reader.problems:
            self.problems.append(Problem((*where, *problem.loc[1:]), problem.msg, problem.type))
        return None if question is None else _Asked(question_id, raw, question, asked_as(raw))

    def examples(self, at: Loc, value: Any, asked: _Asked) -> Examples:  # noqa: ANN401
        if not isinstance(value, list) or not value:
            self.refuse(at, "must be an array of {request, answer} with at least one", "list_type")
            return Examples((), ())
        if len(value) > self._max_examples:
            self.refuse(at, f"there are {len(value)} and {self._max_examples} are allowed", "too_long")
            return Examples((), ())
        texts, labels = [], []
        named = {name: index for index, name in enumerate(option_names(asked.question))}
        for index, example in enumerate(value):
            text = self._state(at, index, example, asked)
            label = self.label((*at, index, "answer"), example, asked.question, named)
            if text is not None and label is not None:
                texts.append(text)
                labels.append(label)
            if len(self.problems) >= ENOUGH_PROBLEMS:
                break
        return Examples(tuple(texts), tuple(labels))

    def _state(self, at: Loc, index: int, example: Any, asked: _Asked) -> str | None:  # noqa: ANN401
        request = example.get("request") if isinstance(example, dict) else None
        if not isinstance(request, dict):
            self.refuse((*at, index), "must be {request, answer}", "dict_type")
            return None
        where = (*at, index, "request")
        for name in ("assets", "images", "adapter", "over_limit", "task"):
            if request.get(name) is not None:
                self.refuse(
                    (*where, name), "an example is a text and its question; leave it out", "value_error"
                )
        questions = request.get("questions")
        if not isinstance(questions, dict) or [*questions] != [asked.id]:
            msg = f"must ask one question under the id of the first example, {asked.id[:64]!r}"
            self.refuse((*where, "questions"), msg, "value_error")
            return None
        raw = questions[asked.id]
        if asked_as(raw) != asked.same:
            msg = "must be the question of the first example: its type, its texts, its options in their order"
            self.refuse((*where, "questions", asked.id), msg, "value_error")
            return None
        return self._text(where, request.get("state"))

    def _text(self, where: Loc, state: Any) -> str | None:  # noqa: ANN401
        if not isinstance(state, str | dict | list):
            self.refuse((*where, "state"), "must be a string, an object or an array", "string_type")
            return None
        text = text_of(state)
        if len(text) > self._max_state_chars:
            msg = f"has {len(text)} characters and {self._max_state_chars} are allowed"
            self.refuse((*where, "state"), msg, "string_too_long")
            return None
        return text

    def label(
        self,
        at: Loc,
        example: Any,  # noqa: ANN401
        question: Question,
        named: Mapping[str, int],
    ) -> int | None:
        answer = example.get("answer") if isinstance(example, dict) else None
        if isinstance(question, Noul) and isinstance(answer, bool):
            answer = "yes" if answer else "no"
        elif isinstance(question, Score) and isinstance(answer, int) and not isinstance(answer, bool):
            answer = str(answer)
        label = named.get(answer) if isinstance(answer, str) else None
        if label is None:
            wanted = {Noul: 'true, false, "yes" or "no"', Score: f"a level's index, 0 to {question.size - 1}"}
            self.refuse(at, f"must be {wanted.get(type(question), 'the name of an option')}", "value_error")
        return label

    def certify(self, value: Any, asked: _Asked) -> tuple[CertifySettings | None, Examples | None]:  # noqa: ANN401
        if value is None or value is False:
            return None, None
        at = ("body", "certify")
        allowed = ("alpha", "delta", "holdout", "min_examples", "examples", "level_error")
        given = self.members(at, {} if value is True else value, (), allowed)
        own = None
        if given.get("examples") is not None:
            own = self.examples((*at, "examples"), given["examples"], asked)
        settings = {name: member for name, member in given.items() if name != "examples"}
        return self.certify_settings(at, settings, asked, CertifySettings()), own

    def certify_settings(
        self, at: Loc, given: Mapping[str, Any], asked: _Asked, default: CertifySettings
    ) -> CertifySettings:
        shares = {
            name: self._share((*at, name), given.get(name, getattr(default, name)), least)
            for name, least in (("alpha", LEAST_ALPHA), ("delta", LEAST_ALPHA), ("holdout", 0.0))
        }
        least = given.get("min_examples", default.min_examples)
        if least is not None and not _is_count(least, 1):
            msg = f"must be a whole number from 1 to {MAX_COUNT}"
            self.refuse((*at, "min_examples"), msg, "value_error")
            least = None
        level_error = given.get("level_error", default.level_error)
        if level_error not in (0, 1) or isinstance(level_error, bool):
            self.refuse((*at, "level_error"), "must be 0 or 1", "value_error")
            level_error = 0
        if level_error and not isinstance(asked.question, Score):
            self.refuse((*at, "level_error"), "is for score questions only; leave it out", "value_error")
        return CertifySettings(**shares, min_examples=least, level_error=level_error)

    def _share(self, at: Loc, value: Any, least: float) -> float:  # noqa: ANN401
        is_number = isinstance(value, int | float) and not isinstance(value, bool)
        if not is_number or not 0.0 < value < 1.0 or value < least:
            wanted = f"from {least:f}" if least else "above 0"
            self.refuse(at, f"must be a number {wanted} and below 1", "value_error")
            return 0.5
        return float(value)

    def fast_table(self, value: Any) -> FastTableSettings | None:  # noqa: ANN401
        if value is None or value is False:
            return None
        at = ("body", "fast_table")
        given = self.members(at, {} if value is True else value, (), FAST_TABLE)
        kind, model = given.get("kind", "static"), given.get("static_model", "english")
        if kind not in KINDS:
            self.refuse((*at, "kind"), f"must be one of {', '.join(KINDS)}", "value_error")
        if not isinstance(model, str) or not model:
            self.refuse(
                (*at, "static_model"), "must be english, multilingual, a path or a hub id", "string_type"
            )
        learn = self._one_of(at, given, "learn", (False, True))
        shares = {
            name: self._part((*at, name), given.get(name, default))
            for name, default in (
                ("min_saving", 0.1),
                ("explore", 0.02 if learn else 0.0),
                ("spot_check", 0.05 if learn else 0.0),
            )
        }
        least = given.get("min_rows", 1_000)
        if not _is_count(least, FEWEST_ROWS):
            msg = f"must be a whole number from {FEWEST_ROWS} to {MAX_COUNT}"
            self.refuse((*at, "min_rows"), msg, "value_error")
            least = FEWEST_ROWS
        return FastTableSettings(
            str(kind),
            str(model),
            mode=self._one_of(at, given, "mode", ("on", "shadow")),
            learn=learn,
            min_rows=least,
            on_revoke=self._one_of(at, given, "on_revoke", ("drop", "keep")),
            **shares,
        )

    def rows_that_can_prove(
        self, certify: CertifySettings, fast_table: FastTableSettings, max_rows: int
    ) -> None:
        """Refuse to wait for rows that can never prove anything, or never come."""
        floor = fewest_all_right(certify.alpha, share(certify.delta, 1, 1))
        needed = max(floor, certify.min_examples or 0)
        held = round(fast_table.min_rows * certify.holdout)
        at: Loc = ("body", "fast_table", "min_rows")
        if held < needed:
            self.refuse(
                at,
                f"{fast_table.min_rows} at holdout {certify.holdout:g} leave {held} to certify on, and that "
                f"takes {needed}: ask for {math.ceil(needed / certify.holdout)}",
                "value_error",
            )
        elif fast_table.min_rows > max_rows:
            msg = f"is {fast_table.min_rows}, and {max_rows} are kept here (tasks.max_rows)"
            self.refuse(at, msg, "value_error")

    def _one_of(self, at: Loc, given: Mapping[str, Any], name: str, allowed: tuple[T, ...]) -> T:
        """A member that is one of a few; the first where it is left out."""
        value = given.get(name, allowed[0])
        for one in allowed:
            if value == one and type(value) is type(one):
                return one
        self.refuse((*at, name), f"must be {' or '.join(map(_as_json, allowed))}", "value_error")
        return allowed[0]

    def _part(self, at: Loc, value: Any) -> float:  # noqa: ANN401
        if isinstance(value, bool) or not isinstance(value, int | float) or not 0.0 <= value < 1.0:
            self.refuse(at, "must be a number from 0 and below 1", "value_error")
            return 0.0
        return float(value)


def _is_count(value: Any, least: int) -> bool:  # noqa: ANN401
    return isinstance(value, int) and not isinstance(value, bool) and least <= value <= MAX_COUNT


def _as_json(value: object) -> str:
    return encode(value).decode()
