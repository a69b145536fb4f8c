"""From a request to a fresh decision: what tables may answer is theirs, and the engine answers the rest."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from core.cache.decision import Decision
from core.consulting import Heard
from core.contract.answers import write_answers
from core.contract.questions import Question
from core.contract.request import Request
from core.engines.base import Engine, Item, Reading
from core.errors import EngineFailed, PrecedentError
from core.identity import Identity
from core.tasks.record import TaskRecord

NO_TABLES: Mapping[str, Heard] = {}


@dataclass(frozen=True, slots=True)
class Inferred:
    """A decision, with what the engine said on the way to it."""

    decision: Decision
    readings: Mapping[str, Reading]  # question id -> reading, of the questions that it was asked


async def infer(
    engine: Engine,
    key: bytes,
    request: Request,
    identity: Identity,
    heard: Mapping[str, Heard] = NO_TABLES,
) -> Inferred:
    """Ask the engine what tables leave open, and write everything down.

    Times and epoch are the caller's to fill in.

    Args:
        engine: the model.
        key: of the request.
        request: what is asked.
        identity: whose request it is.
        heard: question id -> what came of it, for the questions of registered tasks.

    Raises:
        EngineFailed: it raised, or what it said is no answer to this request.
        EngineUnavailable: it could not be reached.
    """
    left = [name for name in request.questions if _is_left(heard.get(name))]
    items = [_item(name, request, identity, heard.get(name)) for name in left]
    readings = dict(zip(left, complete(await _ask(engine, items), len(items)), strict=True)) if items else {}
    return Inferred(_written(engine.name, key, request, readings, heard), readings)


def tabled(model: str, key: bytes, request: Request, heard: Mapping[str, Heard]) -> Decision:
    """The decision of a request whose every question was answered by a table."""
    return _written(model, key, request, {}, heard)


def complete(readings: Sequence[Reading | Exception], expected: int) -> list[Reading]:
    """All readings of a request, or the error of the first that has none: half a decision is none.

    Raises:
        EngineFailed: an item failed, or there are more or fewer readings than items.
    """
    if len(readings) != expected:
        raise EngineFailed(f"{len(readings)} readings for {expected} questions")
    whole = []
    for reading in readings:
        if isinstance(reading, Exception):
            raise _ours(reading) from reading
        whole.append(reading)
    return whole


def _written(
    model: str, key: bytes, request: Request, readings: Mapping[str, Reading], heard: Mapping[str, Heard]
) -> Decision:
    distributions = [
        readings[name].probabilities if name in readings else heard[name].distribution or ()
        for name in request.questions
    ]
    additions = {name: one.additions() for name, one in heard.items()}
    answers, margins = write_answers(request.questions, distributions, additions)
    versions = (one.table_version for one in heard.values())
    return Decision(
        key=key,
        model=model,
        answers=answers,
        margins=margins,
        input_tokens=sum(reading.input_tokens for reading in readings.values()),
        truncated=tuple(name for name, reading in readings.items() if reading.truncated),
        tasks=tuple(dict.fromkeys(one.part.task.record.id for one in heard.values())),
        table_versions=tuple(dict.fromkeys(version for version in versions if version is not None)),
        answered_by={name: one["answered_by"] for name, one in additions.items()},
    )


def _is_left(one: Heard | None) -> bool:
    return one is None or one.distribution is None


def item_of(record: TaskRecord | None, state: str, question: Question, tenant: str) -> Item:
    """What the engine is asked: a task's context comes before the state."""
    if record is not None and record.context is not None:
        state = f"{record.context}\n\n{state}"
    return Item(state, question, tenant)


def _item(name: str, request: Request, identity: Identity, one: Heard | None) -> Item:
    record = None if one is None else one.part.task.record
    return item_of(record, request.state, request.questions[name], identity.tenant)


async def _ask(engine: Engine, items: Sequence[Item]) -> list[Reading | Exception]:
    try:
        return await engine.answer(items)
    except Exception as error:
        raise _ours(error) from error


def _ours(error: Exception) -> PrecedentError:
    return error if isinstance(error, PrecedentError) else EngineFailed(type(error).__name__)
