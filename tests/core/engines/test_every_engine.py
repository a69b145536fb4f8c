"""What every engine must do; a new one joins with one line."""

import math
from collections.abc import Callable
from pathlib import Path

import pytest

from core.contract.questions import Choice, Noul, Score
from core.engines.base import Engine, Item, Reading
from core.engines.batcher import Batched
from core.engines.embedded import EmbeddedModel
from core.engines.fake import FakeEngine

ENGINES: dict[str, Callable[[Path], Engine]] = {
    "fake": lambda artefact: FakeEngine(),
    "embedded": lambda artefact: Batched(EmbeddedModel.load(artefact), max_batch_tokens=4_096),
}

NOUL = Noul("Is a refund due?", None, None)
CHOICE = Choice("Which team?", ("Billing", "Technical", "Sales"), ("charges, invoices", None, "offers"))
SCORE = Score("How urgent?", ("can wait", "this week", "today"), ("can wait", "this week", "today"))
STATE = "I was charged twice for order 5512 and want one of the payments back."


@pytest.fixture(params=ENGINES)
async def engine(request, artefact):
    engine = ENGINES[request.param](artefact)
    yield engine
    await engine.close()


@pytest.mark.parametrize("question", [NOUL, CHOICE, SCORE], ids=["noul", "choice", "score"])
async def test_a_reading_is_a_distribution_over_the_options(engine, question):
    [reading] = await engine.answer([Item(STATE, question)])

    assert isinstance(reading, Reading)
    assert len(reading.probabilities) == question.size
    assert all(type(p) is float and 0.0 <= p <= 1.0 for p in reading.probabilities)
    assert math.isclose(math.fsum(reading.probabilities), 1.0, abs_tol=1e-9)


async def test_readings_come_in_the_order_of_the_items(engine):
    items = [Item(f"{STATE} {n}", question) for n in range(8) for question in (NOUL, CHOICE, SCORE)]

    together = await engine.answer(items)

    assert together == [(await engine.answer([item]))[0] for item in items]


async def test_the_same_item_has_the_same_reading_whatever_stands_beside_it(engine):
    alone = await engine.answer([Item(STATE, CHOICE)])
    company = [Item("x " * length, CHOICE) for length in (0, 1, 40, 400)]

    beside = await engine.answer([*company, Item(STATE, CHOICE)])

    assert engine.batch_invariant
    assert beside[-1] == alone[0]


async def test_no_items_have_no_readings(engine):
    assert await engine.answer([]) == []


@pytest.mark.parametrize(
    "state",
    [
        "",
        " ",
        "\x00",
        "a\r\nb",
        "🙂" * 500,
        "ש" * 300,
        "word " * 3_000,
        "x" * 50_000,
        '{"a":[1,2]}',
        "\u202e\ufeff",
    ],
    ids=["empty", "space", "nul", "crlf", "emoji", "hebrew", "long", "one-word", "json", "controls"],
)
async def test_any_text_has_a_reading(engine, state):
    [reading] = await engine.answer([Item(state, CHOICE)])

    assert isinstance(reading, Reading)
    assert math.isclose(math.fsum(reading.probabilities), 1.0, abs_tol=1e-9)


@pytest.mark.parametrize("count", [1, 2, 26, 27, 255])
async def test_every_number_of_options_up_to_the_contracts_limit_is_answered(engine, count):
    names = tuple(f"option {n}" for n in range(count))

    [reading] = await engine.answer([Item(STATE, Choice(None, names, (None,) * count))])

    assert isinstance(reading, Reading)
    assert len(reading.probabilities) == count


async def test_one_option_is_certain(engine):
    [reading] = await engine.answer([Item(STATE, Choice(None, ("only",), (None,)))])

    assert isinstance(reading, Reading)
    assert reading.probabilities == (1.0,)


def test_an_engine_names_itself_by_content(artefact):
    assert FakeEngine(1).fingerprint != FakeEngine(2).fingerprint
    assert EmbeddedModel.load(artefact).fingerprint == EmbeddedModel.load(artefact, threads=2).fingerprint
