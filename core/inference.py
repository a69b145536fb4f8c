"""From a request to a fresh decision, through the engine."""

from collections.abc import Sequence

from core.cache.decision import Decision
from core.contract.answers import write_answers
from core.contract.request import Request
from core.engines.base import Engine, Item, Reading
from core.errors import EngineFailed, PrecedentError
from core.identity import Identity


async def infer(engine: Engine, key: bytes, request: Request, identity: Identity) -> Decision:
    """Ask the engine and write down what it says. Times and epoch are the caller's to fill in.

    Raises:
        EngineFailed: it raised, or what it said is no answer to this request.
        EngineUnavailable: it could not be reached.
    """
    items = [Item(request.state, question, identity.tenant) for question in request.questions.values()]
    readings = complete(await _ask(engine, items), len(items))
    answers, margins = write_answers(request.questions, [reading.probabilities for reading in readings])
    return Decision(
        key=key,
        model=engine.name,
        answers=answers,
        margins=margins,
        input_tokens=sum(reading.input_tokens for reading in readings),
        truncated=tuple(
            name for name, reading in zip(request.questions, readings, strict=True) if reading.truncated
        ),
    )


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


async def _ask(engine: Engine, items: Sequence[Item]) -> list[Reading | Exception]:
    try:
        return await engine.answer(items)
    except Exception as error:
        raise _ours(error) from error


def _ours(error: Exception) -> PrecedentError:
    return error if isinstance(error, PrecedentError) else EngineFailed(type(error).__name__)
