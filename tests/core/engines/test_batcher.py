"""What is queued while a batch runs is the next batch; no item, caller or model can stop the others."""

import asyncio
import gc
import logging
import threading
import weakref
import zlib
from collections.abc import Callable, Sequence
from contextvars import ContextVar

import pytest

from core.contract.questions import Noul
from core.engines.base import Item, Limits, Reading
from core.engines.batcher import Answer, Batched
from core.errors import EngineFailed, EngineUnavailable

QUESTION = Noul("is it?", None, None)
STUCK_S = 20.0  # a batch that a test forgot to let go


class Belonging:
    """Something of a caller's."""


belonging: ContextVar[Belonging] = ContextVar("belonging")


class Scripted:
    """A blocking model whose batches start and end when the test says so.

    A text costs its length in tokens.
    """

    name = "scripted"
    fingerprint = "scripted"
    limits = Limits(max_tokens=1_000)
    batch_invariant = True

    def __init__(self, outcome: Callable[[Sequence[Item]], list[Answer]]) -> None:
        self.batches: list[list[str]] = []
        self._outcome = outcome
        self._begun: asyncio.Queue[list[str]] = asyncio.Queue()
        self._may_end = threading.Semaphore(0)
        self._loop = asyncio.get_running_loop()

    async def begun(self) -> list[str]:
        """The texts of the next batch that begins."""
        return await self._begun.get()

    def let_go(self, batches: int = 1_000) -> None:
        """Let batches end, running ones and ones to come."""
        self._may_end.release(batches)

    def cost(self, item: Item) -> int:
        return len(item.state)

    def read(self, items: Sequence[Item]) -> list[Answer]:
        texts = [item.state for item in items]
        self.batches.append(texts)
        self._loop.call_soon_threadsafe(self._begun.put_nowait, texts)
        assert self._may_end.acquire(timeout=STUCK_S), f"the test never let {texts} go"
        return self._outcome(items)


def reading_of(text: str) -> Reading:
    return Reading((0.25, 0.75), input_tokens=zlib.crc32(text.encode()))


def readings(items: Sequence[Item]) -> list[Answer]:
    return [reading_of(item.state) for item in items]


def raises(poison: str, error: BaseException) -> Callable[[Sequence[Item]], list[Answer]]:
    """The outcome of a model that raises for a batch with `poison` in it."""

    def outcome(items: Sequence[Item]) -> list[Answer]:
        if any(item.state == poison for item in items):
            raise error
        return readings(items)

    return outcome


class Bench:
    """A batcher over a scripted model, and its callers."""

    def __init__(
        self,
        outcome: Callable[[Sequence[Item]], list[Answer]] = readings,
        max_batch_tokens: int = 1_000,
        max_queued: int = 1_000,
    ) -> None:
        self.model = Scripted(outcome)
        self.engine = Batched(self.model, max_batch_tokens, max_queued)

    def call(self, *texts: str) -> "asyncio.Task[list[Answer]]":
        """A caller who asks about each text."""
        return asyncio.create_task(self.engine.answer([Item(text, QUESTION) for text in texts]))

    async def queue(self, *texts: str) -> "list[asyncio.Task[list[Answer]]]":
        """A caller for each text, all of whom wait."""
        callers = [self.call(text) for text in texts]
        await turns()
        return callers

    async def busy(self) -> "asyncio.Task[list[Answer]]":
        """A caller whose batch has begun and runs until let go."""
        caller = self.call("first")
        assert await self.model.begun() == ["first"]
        return caller


@pytest.fixture
async def bench(caplog):
    """Makes benches; afterwards no task and no thread is left, nor a complaint of the event loop."""
    benches: list[Bench] = []

    def make(*args, **kwargs) -> Bench:
        benches.append(Bench(*args, **kwargs))
        return benches[-1]

    yield make
    for each in benches:
        each.model.let_go()
        await each.engine.close()
    await turns()
    assert asyncio.all_tasks() == {asyncio.current_task()}
    assert [thread.name for thread in threading.enumerate() if thread.name.startswith("engine")] == []
    gc.collect()
    assert [record.getMessage() for record in caplog.records if record.levelno >= logging.ERROR] == []


async def answers_of(*callers: "asyncio.Task[list[Answer]]") -> list[list[Answer]]:
    return [await caller for caller in callers]


async def turns(count: int = 5) -> None:
    """Let everything that is ready run."""
    for _ in range(count):
        await asyncio.sleep(0)


async def test_a_lone_caller_waits_for_nobody(bench):
    one = bench()
    one.model.let_go()

    assert await one.call("a") == [reading_of("a")]
    assert one.model.batches == [["a"]]


async def test_what_is_queued_while_a_batch_runs_is_the_next_batch(bench):
    one = bench()
    first = await one.busy()
    callers = [first, one.call("a", "b"), *await one.queue("c", "d")]

    one.model.let_go()

    answers = await asyncio.gather(*callers)
    assert one.model.batches == [["first"], ["a", "b", "c", "d"]]
    assert answers[1:] == [[reading_of("a"), reading_of("b")], [reading_of("c")], [reading_of("d")]]


async def test_a_batch_holds_no_more_tokens_than_the_budget(bench):
    one = bench(max_batch_tokens=10)
    callers = [await one.busy(), *await one.queue("a" * 4, "b" * 6, "c" * 1, "d" * 9, "e" * 2)]

    one.model.let_go()
    await asyncio.gather(*callers)

    assert one.model.batches[1:] == [["aaaa", "bbbbbb"], ["c", "d" * 9], ["ee"]]


async def test_an_item_larger_than_the_budget_runs_alone(bench):
    one = bench(max_batch_tokens=10)
    callers = [await one.busy(), *await one.queue("a", "b" * 99, "c")]

    one.model.let_go()
    await asyncio.gather(*callers)

    assert one.model.batches[1:] == [["a"], ["b" * 99], ["c"]]


async def test_the_items_of_one_caller_may_run_in_several_batches_and_come_back_in_order(bench):
    one = bench(max_batch_tokens=2)
    one.model.let_go()

    assert await one.call("a", "b", "c", "d", "e") == [reading_of(text) for text in "abcde"]
    assert one.model.batches == [["a", "b"], ["c", "d"], ["e"]]


async def test_no_items_need_no_batch(bench):
    one = bench()

    assert await one.call() == []
    assert one.model.batches == []


async def test_two_hundred_callers_at_once_each_get_their_own_answers_in_order(bench):
    one = bench(max_batch_tokens=64)
    one.model.let_go()
    asked = [[f"{caller}/{n}" for n in range(caller % 5)] for caller in range(200)]

    answers = await asyncio.gather(*(one.call(*texts) for texts in asked))

    assert answers == [[reading_of(text) for text in texts] for texts in asked]
    assert all(sum(map(len, batch)) <= 64 for batch in one.model.batches)


async def test_after_the_middle_caller_of_a_batch_leaves_the_others_and_a_later_one_are_answered(bench):
    one = bench()
    first = await one.busy()
    a, b, c = await one.queue("a", "b", "c")
    one.model.let_go(1)
    assert await one.model.begun() == ["a", "b", "c"]

    b.cancel()
    with pytest.raises(asyncio.CancelledError):
        await b
    one.model.let_go()

    assert await answers_of(first, a, c) == [[reading_of("first")], [reading_of("a")], [reading_of("c")]]
    assert await one.call("d") == [reading_of("d")]
    await one.engine.check_health()


async def test_items_of_a_caller_who_left_are_dropped_when_the_next_batch_is_cut(bench):
    one = bench(max_batch_tokens=3)
    first = await one.busy()
    a, left, c = one.call("a"), one.call("x", "y", "z"), one.call("c")
    await turns()

    left.cancel()
    one.model.let_go()
    await asyncio.gather(first, a, c)

    assert one.model.batches[1:] == [["a", "c"]]


async def test_when_every_caller_left_nothing_runs(bench):
    one = bench()
    first = await one.busy()
    for caller in await one.queue("a", "b"):
        caller.cancel()

    one.model.let_go()
    await first
    await one.call("c")

    assert one.model.batches[1:] == [["c"]]


async def test_a_batch_that_raises_is_read_again_one_by_one_so_that_only_the_item_to_blame_fails(bench):
    error = ValueError("poison")
    one = bench(outcome=raises("poison", error))
    one.model.let_go()

    assert await one.call("a", "poison", "b") == [reading_of("a"), error, reading_of("b")]
    assert one.model.batches == [["a", "poison", "b"], ["a"], ["poison"], ["b"]]
    assert await one.call("c") == [reading_of("c")]


@pytest.mark.parametrize(
    "error",
    [StopIteration(), TimeoutError(), EngineFailed("no"), RecursionError()],
    ids=lambda error: type(error).__name__,
)
async def test_whatever_exception_a_model_raises_the_batcher_lives_on(bench, error):
    one = bench(outcome=raises("poison", error))
    one.model.let_go()

    assert await one.call("poison") == [error]
    assert await one.call("a") == [reading_of("a")]
    await one.engine.check_health()


@pytest.mark.parametrize("count", [0, 1, 5])
async def test_a_wrong_number_of_readings_fails_the_items_and_not_the_batcher(bench, count):
    one = bench(outcome=lambda items: readings(items) if len(items) == 1 else [reading_of("?")] * count)
    one.model.let_go()

    assert await one.call("a", "b") == [reading_of("a"), reading_of("b")]  # each alone


async def test_an_item_that_has_no_reading_even_alone_fails(bench):
    one = bench(outcome=lambda items: [])
    one.model.let_go()

    [answer] = await one.call("a")

    assert isinstance(answer, EngineFailed)
    assert answer.why == "0 readings for 1 items"
    await one.engine.check_health()


async def test_an_exception_in_the_place_of_a_reading_is_handed_on(bench):
    error = EngineFailed("no")
    one = bench(outcome=lambda items: [error, *readings(items)[1:]])
    one.model.let_go()

    assert await one.call("a", "b") == [error, reading_of("b")]
    assert one.model.batches == [["a", "b"]]


@pytest.mark.parametrize(
    "end", [SystemExit(), KeyboardInterrupt(), asyncio.CancelledError()], ids=lambda end: type(end).__name__
)
async def test_a_worker_that_dies_fails_its_health_and_everybody_at_once(bench, end):
    one = bench(outcome=raises("fatal", end), max_batch_tokens=5)
    first = await one.busy()
    in_hand = await one.queue("fatal")
    waiting = [*await one.queue("a"), one.call("b", "c")]  # several futures of one caller, too
    await one.engine.check_health()

    one.model.let_go()

    assert await first == [reading_of("first")]
    for caller in (*in_hand, *waiting):
        with pytest.raises(EngineUnavailable, match=type(end).__name__):
            await caller
    assert one.model.batches == [["first"], ["fatal"]]
    with pytest.raises(EngineUnavailable, match=type(end).__name__):
        await one.engine.check_health()
    with pytest.raises(EngineUnavailable, match=type(end).__name__):
        await one.call("later")


async def test_a_dead_worker_says_nothing_to_a_caller_who_left_before(bench):
    one = bench(outcome=raises("fatal", SystemExit()))
    a, fatal = await one.busy(), one.call("fatal", "x")
    left = one.call("left")
    await turns()

    left.cancel()
    one.model.let_go()

    await a
    with pytest.raises(EngineUnavailable):
        await fatal
    with pytest.raises(asyncio.CancelledError):
        await left


async def test_closing_finishes_what_was_taken_and_takes_no_more(bench):
    one = bench()
    taken = [await one.busy(), *await one.queue("a", "b")]

    closing = asyncio.create_task(one.engine.close())
    await turns()
    with pytest.raises(EngineUnavailable, match="shutting down"):
        await one.call("late")
    assert not closing.done()
    one.model.let_go()
    await closing

    assert [caller.done() for caller in taken] == [True] * 3
    assert [caller.result() for caller in taken] == [[reading_of(text)] for text in ("first", "a", "b")]
    assert [thread.name for thread in threading.enumerate() if thread.name.startswith("engine")] == []


async def test_closing_an_engine_that_never_ran_is_nothing_and_so_is_closing_twice(bench):
    one = bench()

    await one.engine.close()
    await one.engine.close()

    with pytest.raises(EngineUnavailable):
        await one.call("late")


async def test_more_items_than_may_wait_are_refused_and_the_others_are_not(bench):
    one = bench(max_queued=3)
    first = await one.busy()
    waiting = one.call("a", "b")
    await turns()

    with pytest.raises(EngineUnavailable, match="2 items wait and 3 may"):
        await one.call("c", "d")
    last = one.call("c")
    await turns()
    one.model.let_go()

    assert await answers_of(first, waiting, last) == [
        [reading_of("first")],
        [reading_of("a"), reading_of("b")],
        [reading_of("c")],
    ]


async def test_the_batcher_holds_on_to_nothing_that_its_first_caller_kept_in_its_context(bench):
    one = bench()
    one.model.let_go()

    async def caller() -> "weakref.ref[Belonging]":
        thing = Belonging()
        belonging.set(thing)
        await one.engine.answer([Item("a", QUESTION)])
        return weakref.ref(thing)

    thing = await asyncio.create_task(caller())
    await turns()
    gc.collect()

    assert thing() is None


async def test_the_batcher_speaks_for_its_model(bench):
    one = bench()

    engine, model = one.engine, one.model
    assert (engine.name, engine.fingerprint, engine.limits, engine.batch_invariant) == (
        model.name,
        model.fingerprint,
        model.limits,
        model.batch_invariant,
    )
