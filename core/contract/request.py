"""A parsed request, and the strict way to one."""

from dataclasses import dataclass
from itertools import islice
from typing import Any, Final

from core.contract.questions import Question, QuestionReader, text_of
from core.contract.strict_json import decode, encode
from core.errors import InvalidRequest, Problem, StateTooLong, UnknownModel, UnsupportedFeature


@dataclass(frozen=True, slots=True)
class Contract:
    """What one deployment accepts."""

    models: tuple[str, ...]  # names that a request may use, aliases included
    max_questions: int = 512
    max_state_chars: int = 200_000


@dataclass(frozen=True, slots=True)
class Request:
    """A valid body: nothing below the parser checks it again."""

    model: str
    state: str  # as text; objects and arrays as compact JSON
    questions: dict[str, Question]  # in the caller's order
    compact: bytes  # what the key is made of: the body without spaces, less `NOT_IN_THE_KEY`


ENOUGH_PROBLEMS: Final = 20
"""Once this many problems are known no further question is read: a body full of faults costs no more than
others."""

NOT_IN_THE_KEY: Final[dict[str, str]] = {
    "x_trace_id": "names one call for tracing; no engine is shown it",
}
"""Members of a body that do not make another request, each with the reason. Every other member does, known or
not."""


@dataclass(frozen=True, slots=True)
class Opened:
    """A body that is acceptable JSON: enough to know its key, and not yet a request."""

    value: Any
    compact: bytes  # what the key is made of: the body without spaces, less `NOT_IN_THE_KEY`


def open_body(body: bytes) -> Opened:
    """Decode a body strictly.

    Raises:
        MalformedBody: not acceptable JSON.
    """
    value, compact = decode(body)
    return Opened(value, compact) if keyed(value) is value else open_value(value)


def open_value(value: Any) -> Opened:  # noqa: ANN401  any JSON value
    """Open what was decoded already.

    Raises:
        MalformedBody: a lone surrogate somewhere in it.
    """
    return Opened(value, encode(keyed(value)))


def keyed(value: Any) -> Any:  # noqa: ANN401
    """The part of a body that makes it the request it is; `value` itself when that is all of it."""
    if not isinstance(value, dict) or NOT_IN_THE_KEY.keys().isdisjoint(value):
        return value
    return {name: member for name, member in value.items() if name not in NOT_IN_THE_KEY}


def parse(body: bytes, contract: Contract) -> Request:
    """Read a body strictly: `open_body`, then `read`."""
    return read(open_body(body), contract)


def read(opened: Opened, contract: Contract) -> Request:
    """Read the request that an opened body holds.

    Raises:
        InvalidRequest: JSON that breaks the contract; lists what is wrong, at least the first
        `ENOUGH_PROBLEMS`.
        UnknownModel, UnsupportedFeature, StateTooLong: a valid body that cannot be served here.
    """
    value = opened.value
    if not isinstance(value, dict):
        raise InvalidRequest((Problem(("body",), "the body must be an object", "dict_type"),))
    problems = _shape_problems(value)
    reader = QuestionReader()
    raw_questions = value.get("questions")
    questions: dict[str, Question] = {}
    if isinstance(raw_questions, dict):
        problems += _count_problems(raw_questions, contract)
        for question_id, raw in islice(raw_questions.items(), contract.max_questions):
            if len(reader.problems) >= ENOUGH_PROBLEMS:
                break
            question = reader.read(question_id, raw)
            if question is not None:
                questions[question_id] = question
    problems += reader.problems
    if problems:
        raise InvalidRequest(tuple(problems))
    _refuse_what_is_not_served(value, contract)
    return Request(
        model=value["model"],
        state=_state_text(value["state"], contract),
        questions=questions,
        compact=opened.compact,
    )


def _shape_problems(value: dict[str, Any]) -> list[Problem]:
    expected = (
        ("model", str, "must be a string", "string_type"),
        ("state", (str, dict, list), "must be a string, an object or an array", "string_type"),
        ("questions", dict, "must be an object from question id to question", "dict_type"),
    )
    problems = []
    for name, types, msg, kind in expected:
        if name not in value:
            problems.append(Problem(("body", name), "Field required", "missing"))
        elif not isinstance(value[name], types):
            problems.append(Problem(("body", name), msg, kind))
    return problems


def _count_problems(questions: dict[str, Any], contract: Contract) -> list[Problem]:
    at = ("body", "questions")
    if not questions:
        return [Problem(at, "at least one question is needed and there are none", "too_short")]
    problems = []
    if len(questions) > contract.max_questions:
        msg = f"there are {len(questions)} questions and {contract.max_questions} are allowed"
        problems.append(Problem(at, msg, "too_long"))
    if "" in questions:
        problems.append(Problem(at, "a question id must not be empty", "string_too_short"))
    return problems


def _refuse_what_is_not_served(value: dict[str, Any], contract: Contract) -> None:
    if value["model"] not in contract.models:
        raise UnknownModel(contract.models)
    if value.get("stream"):
        raise UnsupportedFeature("stream", "answers arrive whole; leave the member out")
    if value.get("assets"):
        raise UnsupportedFeature("assets", "this server reads text only; put the text into the state")


def _state_text(state: Any, contract: Contract) -> str:  # noqa: ANN401
    text = text_of(state)
    if len(text) > contract.max_state_chars:
        raise StateTooLong(len(text), contract.max_state_chars)
    return text
