"""Which registered tasks a request is about, and why a table may not be asked."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from core.contract.questions import asked_as
from core.contract.request import Opened, open_value
from core.contract.strict_json import encode
from core.errors import InvalidRequest, Problem, TaskNotFound
from core.tasks.record import State
from core.tasks.registry import Registered, TenantTasks

OPTIONS_CHANGED: Final = "options_changed"
QUESTION_CHANGED: Final = "question_changed"
SUSPENDED: Final = "suspended"
SHADOW: Final = "shadow"
ASKED_ALL_THE_SAME: Final = frozenset([SUSPENDED, SHADOW])
"""Reasons for which a table does not answer, and is asked to be compared with the engine."""
WHY_NOT_HERE: Final = {
    State.TIMING: "being_timed",
    State.UNAVAILABLE: "table_unavailable",
    State.OFF: "not_worth_it",
}


@dataclass(frozen=True, slots=True)
class Part:
    """One question of a request that belongs to a task."""

    task: Registered
    reason: str | None  # why its table may not be asked; None when it may


@dataclass(frozen=True, slots=True)
class Selection:
    """The tasks of one request.

    `task` is the part of the key that says which tasks answer, under which contexts; None for none.
    """

    task: str | None = None
    parts: Mapping[str, Part] = field(default_factory=dict)  # question id -> its task
    warning: str | None = None


NO_TASK: Final = Selection()


def select(opened: Opened, tasks: TenantTasks | None) -> tuple[Opened, Selection]:
    """The request with the questions it leaves to its task, and the tasks it is about.

    A request names a task with the member `task`, or asks exactly a registered question.

    Raises:
        TaskNotFound: it names a task that is not registered.
        InvalidRequest: the name is no text.
    """
    value = opened.value
    if not isinstance(value, dict):
        return opened, NO_TASK
    if "task" in value:
        return _named(opened, value, tasks)
    questions = value.get("questions")
    if tasks is None or not isinstance(questions, dict):
        return opened, NO_TASK
    parts = {}
    for name, raw in questions.items():
        asked = asked_as(raw)
        one = None if asked is None else tasks.by_question.get(asked)
        if one is not None:
            parts[name] = Part(one, why_not_asked(one))
    return opened, _selection(value, parts)


def why_not_asked(task: Registered) -> str | None:
    """Why the table of a task answers nothing at all; None when it answers what it may."""
    record = task.record
    if record.state is State.SUSPENDED:
        return SUSPENDED
    if task.here is not None:
        return WHY_NOT_HERE[task.here.state]
    if record.table is None:
        return "no_table"
    if not record.table.certificate.certified:
        return "nothing_certified"
    if record.state is not State.ACTIVE or task.table is None:
        return "no_table"
    assert record.fast_table is not None  # or there would be no table
    return SHADOW if record.fast_table.mode == "shadow" else None


def _named(opened: Opened, value: dict[str, Any], tasks: TenantTasks | None) -> tuple[Opened, Selection]:
    name = value["task"]
    if not isinstance(name, str):
        problem = Problem(("body", "task"), "must be the id of a registered task", "string_type")
        raise InvalidRequest((problem,))
    one = None if tasks is None else tasks.by_id.get(name)
    if one is None:
        raise TaskNotFound(name)
    record = one.record
    if "questions" not in value:
        value = value | {"questions": {record.question_id: record.question}}
        opened = open_value(value)
    questions = value["questions"]
    if not isinstance(questions, dict):
        return opened, Selection(_key_part([one]))
    asked = asked_as(record.question)
    matching = [name for name, raw in questions.items() if asked_as(raw) == asked]
    if matching:
        parts = {name: Part(one, why_not_asked(one)) for name in matching}
    else:
        parts = {name: Part(one, _what_changed(raw, record.question)) for name, raw in questions.items()}
    return opened, _selection(value, parts)


def _selection(value: dict[str, Any], parts: dict[str, Part]) -> Selection:
    if not parts:
        return NO_TASK
    distinct = {part.task.record.id: part.task for part in parts.values()}
    return Selection(_key_part([*distinct.values()]), parts, _warning(value.get("state"), distinct))


def _key_part(tasks: list[Registered]) -> str:
    return encode([[one.record.id, one.record.context_revision] for one in tasks]).decode()


def _warning(state: Any, tasks: Mapping[str, Registered]) -> str | None:  # noqa: ANN401  any JSON value
    if not isinstance(state, str):
        return None
    for one in tasks.values():
        context = one.record.context
        if context and state.startswith(context):
            return (
                "the state begins with the context of its task, which is read before it anyway; leave it out"
            )
    return None


def _what_changed(raw: Any, registered: Mapping[str, Any]) -> str:  # noqa: ANN401
    same = isinstance(raw, dict) and _options(raw) == _options(registered)
    return QUESTION_CHANGED if same else OPTIONS_CHANGED


def _options(raw: Mapping[str, Any]) -> tuple[Any, ...]:
    criteria = raw.get("criteria")
    if raw.get("type") == "choice" and isinstance(criteria, Mapping):
        return ("choice", *criteria)
    return (raw.get("type"), criteria if raw.get("type") == "score" else None)
