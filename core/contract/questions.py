"""The three kinds of question, as values that cannot exist in a bad state below the parser."""

from dataclasses import dataclass
from typing import Any

from core.contract.strict_json import encode
from core.errors import Problem

MAX_OPTIONS = 255
MAX_LEVELS = 10


@dataclass(frozen=True, slots=True)
class Noul:
    """A yes/no question. Its distribution is (P(yes), P(no))."""

    instructions: str | None
    yes: str | None  # what makes the answer yes, where the caller said so
    no: str | None

    @property
    def size(self) -> int:
        """Length of the distribution."""
        return 2


@dataclass(frozen=True, slots=True)
class Choice:
    """One of several named options. Its distribution follows the order of `options`."""

    instructions: str | None
    options: tuple[str, ...]  # byte for byte as the caller wrote them
    descriptions: tuple[str | None, ...]  # one per option

    @property
    def size(self) -> int:
        """Length of the distribution."""
        return len(self.options)


@dataclass(frozen=True, slots=True)
class Score:
    """A level on an ordered scale. Its distribution follows the order of `levels`."""

    instructions: str | None
    levels: tuple[str, ...]  # as text
    legend: tuple[Any, ...]  # as the caller wrote them: strings, objects or arrays

    @property
    def size(self) -> int:
        """Length of the distribution."""
        return len(self.levels)


Question = Noul | Choice | Score


def text_of(value: Any) -> str:  # noqa: ANN401  a JSON string, object or array
    """The text a model reads for a value: a string as it is, anything else as compact JSON."""
    return value if isinstance(value, str) else encode(value).decode()


def asked_as(raw: Any) -> bytes | None:  # noqa: ANN401  any JSON value
    """What makes a question the one it is, as bytes: equal for the same question in another spelling.

    The order of options and levels counts; that of other members, and members that nobody reads, do not. None
    for what is no question.
    """
    if not isinstance(raw, dict):
        return None
    kind, criteria = raw.get("type"), raw.get("criteria")
    if kind == "noul" and isinstance(criteria, dict):
        criteria = [criteria.get("true"), criteria.get("false")]
    elif kind == "noul":
        criteria = [None, None]
    return encode([kind, raw.get("instructions"), criteria])


class QuestionReader:
    """Read the questions of one body, collecting every problem instead of stopping at the first."""

    def __init__(self) -> None:
        self.problems: list[Problem] = []

    def read(self, question_id: str, raw: Any) -> Question | None:  # noqa: ANN401
        """Return the question, or None after noting at least one problem."""
        at = ("body", "questions", question_id)
        if not isinstance(raw, dict):
            self._refuse(at, "a question must be an object", "dict_type")
            return None
        kind = raw.get("type")
        if kind is None:
            self._refuse(at, "'type' is missing; use noul, choice or score", "union_tag_not_found")
            return None
        if kind == "noul":
            return self._noul((*at, "noul"), raw)
        if kind == "choice":
            return self._choice((*at, "choice"), raw)
        if kind == "score":
            return self._score((*at, "score"), raw)
        self._refuse(at, "'type' must be noul, choice or score", "union_tag_invalid")
        return None

    def _noul(self, at: tuple[str, ...], raw: dict[str, Any]) -> Noul | None:
        before = len(self.problems)
        instructions = self._text((*at, "instructions"), raw.get("instructions"))
        criteria = raw.get("criteria")
        if criteria is None:
            criteria = {}
        elif not isinstance(criteria, dict):
            self._refuse((*at, "criteria"), "criteria of a noul must be an object or null", "dict_type")
            return None
        yes = self._text((*at, "criteria", "true"), criteria.get("true"))
        no = self._text((*at, "criteria", "false"), criteria.get("false"))
        if len(self.problems) > before:
            return None
        if not any(text and not text.isspace() for text in (instructions, yes, no)):
            self._refuse(at, "a noul needs instructions, or criteria for true or false", "value_error")
            return None
        return Noul(instructions, yes, no)

    def _choice(self, at: tuple[str, ...], raw: dict[str, Any]) -> Choice | None:
        before = len(self.problems)
        instructions = self._text((*at, "instructions"), raw.get("instructions"))
        at = (*at, "criteria")
        criteria = raw.get("criteria")
        if not isinstance(criteria, dict):
            self._missing_or_wrong(at, raw, "criteria of a choice must be an object", "dict_type")
            return None
        if not self._count_is_allowed(at, len(criteria), MAX_OPTIONS, "options"):
            return None
        descriptions = tuple(self._text((*at, name), criteria[name]) for name in criteria)
        if len(self.problems) > before:
            return None
        return Choice(instructions, tuple(criteria), descriptions)

    def _score(self, at: tuple[str, ...], raw: dict[str, Any]) -> Score | None:
        before = len(self.problems)
        instructions = self._text((*at, "instructions"), raw.get("instructions"))
        at = (*at, "criteria")
        criteria = raw.get("criteria")
        if not isinstance(criteria, list):
            self._missing_or_wrong(at, raw, "criteria of a score must be an array", "list_type")
            return None
        if not self._count_is_allowed(at, len(criteria), MAX_LEVELS, "levels"):
            return None
        levels = []
        for index, level in enumerate(criteria):
            text = self._text((*at, index), level)
            if level is None:
                self._refuse((*at, index), "a level must be a string, an object or an array", "string_type")
            levels.append(text or "")
        if len(self.problems) > before:
            return None
        return Score(instructions, tuple(levels), tuple(criteria))

    def _text(self, at: tuple[str | int, ...], value: Any) -> str | None:  # noqa: ANN401
        if value is None or isinstance(value, str):
            return value
        if isinstance(value, dict | list):
            return text_of(value)
        self._refuse((*at, "str"), "must be a string, an object, an array or null", "string_type")
        return None

    def _count_is_allowed(self, at: tuple[str, ...], count: int, most: int, what: str) -> bool:
        if count == 0:
            self._refuse(at, f"at least 1 of the {what} is needed and there are none", "too_short")
        elif count > most:
            self._refuse(at, f"there are {count} {what} and {most} are allowed", "too_long")
        else:
            return True
        return False

    def _missing_or_wrong(self, at: tuple[str, ...], raw: dict[str, Any], msg: str, kind: str) -> None:
        missing = "criteria" not in raw
        self._refuse(at, "Field required" if missing else msg, "missing" if missing else kind)

    def _refuse(self, at: tuple[str | int, ...], msg: str, kind: str) -> None:
        self.problems.append(Problem(at, msg, kind))
