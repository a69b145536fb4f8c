"""Who answers, in which order; that the first decision stands; that half a decision is none."""

import asyncio
import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import pytest

from core.cache.cache import DecisionCache
from core.cache.fences import Scope
from core.cache.modes import Mode, view
from core.cache.retention import Retention
from core.cache.stores.base import Store
from core.cache.stores.memory import MemoryStore
from core.contract.request import Contract
from core.contract.strict_json import encode
from core.contract.terms import Terms
from core.engines.base import Item, Reading
from core.engines.fake import FakeEngine
from core.errors import (
    DeadlineExceeded,
    EngineFailed,
    EngineUnavailable,
    EvidenceExpired,
    InvalidRequest,
    MalformedBody,
    NotCached,
    Overloaded,
)
from core.identity import Identity
from core.inference import complete
from core.outcome import Source
from core.routing import Admission, Decider, Lane

ME = Identity("acme", "app")
NOUL = {"type": "noul", "instructions": "Is it so?"}
BODY = encode({"model": "m", "state": "some text", "questions": {"q": NOUL}})


@dataclass
class Desk:
    """A Decider over parts that a test can look at."""

    engine: FakeEngine = field(default_factory=FakeEngine)
    store: Store = field(default_factory=lambda: MemoryStore(max_entries=100))
    retention: Retention = field(default_factory=Retention)
    admission: Admission = field(default_factory=lambda: Admission(deadline_s=60.0))
    now: float = 1_000.0

    def __post_init__(self) -> None:
        self.cache = DecisionCache(self.store, self.retention)
        self.engine.fingerprint = "pinned"  # engines that answer differently and pass for one
        self.decider = Decider(
            contract=Contract(("m", "other")),
            engine=self.engine,
            cache=self.cache,
            clock=lambda: self.now,
            admission=self.admission,
        )

    def lane(self, identity: Identity = ME) -> Lane:
        return self.decider.lane(identity)

    async def ask(
        self, body: bytes = BODY, terms: Terms | None = None, identity: Identity = ME
    ) -> tuple[Source, bytes]:
        """Where the answers came from, and the answers."""
        outcome = await self.decider.decide(body, self.lane(identity), *([terms] if terms else []))
        return outcome.source, outcome.decision.answers


@pytest.fixture
def desk() -> Desk:
    return Desk()


async def gathered(*callers: Any) -> list[Any]:
    return list(await asyncio.gather(*callers))


class TestTheOrderOfTheSources:
    async def test_a_new_request_is_answered_by_the_engine_and_kept(self, desk):
        source, answers = await desk.ask()

        assert source is Source.MODEL
        assert json.loads(answers).keys() == {"q"}
        assert await desk.store.count(desk.now) == 1

    async def test_its_repeat_is_replayed_from_memory_by_its_bytes_alone(self, desk):
        _, answers = await desk.ask()

        decision = desk.decider.replay(BODY, desk.lane(), desk.now)

        assert decision is not None
        assert decision.answers == answers

    async def test_a_body_never_met_is_not_replayed_by_its_bytes(self, desk):
        await desk.ask()

        assert desk.decider.replay(BODY + b" ", desk.lane(), desk.now) is None
        assert desk.decider.replay(b"", desk.lane(), desk.now) is None

    async def test_another_spelling_is_replayed_after_parsing_and_then_by_its_bytes(self, desk):
        _, answers = await desk.ask()
        spelled = json.dumps(json.loads(BODY), indent=1).encode()

        assert await desk.ask(spelled) == (Source.REPLAY, answers)
        decision = desk.decider.replay(spelled, desk.lane(), desk.now)

        assert decision is not None
        assert decision.answers == answers
        assert desk.engine.runs == 1

    @pytest.mark.parametrize("long", [False, True])
    @pytest.mark.parametrize("spell", [dict(indent=1), dict(separators=(", ", ": ")), None], ids=str)
    async def test_every_spelling_of_any_length_is_replayed_again_and_again(self, desk, spell, long):
        value = json.loads(BODY) | {"state": "x" * (10_000 if long else 10)}
        _, answers = await desk.ask(encode(value))
        spelled = json.dumps(value, **spell).encode() if spell else encode(value) + b" "

        for _ in range(3):
            decision = desk.decider.replay(spelled, desk.lane(), desk.now)
            assert decision is None or decision.answers == answers
            assert await desk.ask(spelled) == (Source.REPLAY, answers)
        assert desk.engine.runs == 1

    async def test_a_spelling_that_shows_at_its_beginning_is_recognised_without_having_been_met(self, desk):
        await desk.ask()

        assert desk.decider.replay(json.dumps(json.loads(BODY)).encode(), desk.lane(), desk.now) is not None
        assert desk.decider.replay(b'{"model": "m"', desk.lane(), desk.now) is None

    async def test_forgotten_spellings_are_parsed_again(self, desk):
        spelled = BODY + b"\n"
        await desk.ask(spelled)

        desk.decider.forget_spellings()

        assert desk.decider.replay(spelled, desk.lane(), desk.now) is None
        assert (await desk.ask(spelled))[0] is Source.REPLAY

    async def test_a_decision_of_another_process_is_replayed_from_the_store(self, desk):
        _, answers = await Desk(store=desk.store).ask()

        assert await desk.ask() == (Source.REPLAY, answers)
        assert desk.engine.runs == 0

    async def test_callers_who_come_meanwhile_join_the_flight(self):
        gate = asyncio.Event()
        desk = Desk(engine=FakeEngine(gate=gate))
        callers = [asyncio.create_task(desk.ask()) for _ in range(3)]
        while not desk.engine.runs:
            await asyncio.sleep(0)

        gate.set()
        outcomes = await asyncio.gather(*callers)

        assert [source for source, _ in outcomes] == [Source.MODEL, Source.COALESCED, Source.COALESCED]
        assert len({answers for _, answers in outcomes}) == 1
        assert desk.engine.runs == 1

    async def test_callers_who_join_a_flight_that_finds_a_stored_decision_get_a_replay(self, desk):
        await Desk(store=desk.store).ask()

        outcomes = await gathered(desk.ask(), desk.ask())

        assert {source for source, _ in outcomes} == {Source.REPLAY}


class TestWhoseRequestItIs:
    @pytest.mark.parametrize(
        "other",
        [
            Identity("zeta", "app"),
            Identity("acme", "app2"),
            Identity("acme", "app", evidence="r1"),
            Identity("acme", "app", contract="r1"),
        ],
    )
    async def test_decides_which_decisions_are_its_own(self, desk, other):
        await desk.ask()

        assert desk.decider.replay(BODY, desk.lane(other), desk.now) is None
        assert (await desk.ask(identity=other))[0] is Source.MODEL

    async def test_decides_which_flights_it_may_join(self):
        gate = asyncio.Event()
        desk = Desk(engine=FakeEngine(gate=gate))
        callers = [asyncio.create_task(desk.ask(identity=Identity(t, "app"))) for t in ("acme", "zeta")]
        while desk.engine.runs < 2:
            await asyncio.sleep(0)

        gate.set()

        assert [source for source, _ in await asyncio.gather(*callers)] == [Source.MODEL, Source.MODEL]


class TestWhatTheEngineIsAsked:
    async def test_each_question_about_the_same_state_in_their_order(self, desk):
        questions = {
            "z": NOUL,
            "a": {"type": "choice", "criteria": {"y": None, "x": "d"}},
            "m": {"type": "score", "criteria": ["lo", "hi"]},
        }

        _, answers = await desk.ask(encode({"model": "m", "state": {"b": 1, "a": 2}, "questions": questions}))

        (batch,) = desk.engine.batches
        assert {item.state for item in batch} == {'{"b":1,"a":2}'}
        assert [type(item.question).__name__ for item in batch] == ["Noul", "Choice", "Score"]
        assert list(json.loads(answers)) == ["z", "a", "m"]
        assert list(json.loads(answers)["a"]["probabilities"]) == ["y", "x"]

    async def test_nothing_about_ids_or_other_questions_reaches_an_item(self, desk):
        await desk.ask(encode({"model": "m", "state": "s", "questions": {"secret id": NOUL, "other": NOUL}}))

        (batch,) = desk.engine.batches
        assert batch[0] == batch[1]
        assert "secret" not in repr(batch)

    async def test_an_answer_does_not_move_with_ids_order_or_company(self, desk):
        alone = json.loads((await desk.ask())[1])["q"]
        company = {"other": {"type": "choice", "criteria": {"a": None}}, "renamed": NOUL, "last": NOUL}

        _, answers = await desk.ask(encode({"model": "m", "state": "some text", "questions": company}))

        assert json.loads(answers)["renamed"] == json.loads(answers)["last"] == alone

    async def test_tokens_are_counted_and_truncation_is_named(self):
        class Cutting(FakeEngine):
            async def answer(self, items: Sequence[Item]) -> list[Reading | Exception]:
                readings = [Reading((0.5, 0.5), 7), Reading((0.25, 0.75), 5, truncated=True)]
                return list(readings)

        desk = Desk(engine=Cutting())
        body = encode({"model": "m", "state": "s", "questions": {"whole": NOUL, "cut": NOUL}})

        outcome = await desk.decider.decide(body, desk.lane())

        assert (outcome.decision.input_tokens, outcome.decision.truncated) == (12, ("cut",))


@pytest.mark.parametrize(("body", "error"), [(b"{", MalformedBody), (b"{}", InvalidRequest)])
async def test_what_is_no_request_reaches_neither_store_nor_engine(desk, body, error):
    for _ in range(2):
        with pytest.raises(error):
            await desk.ask(body)

    assert (desk.engine.runs, await desk.store.count(desk.now)) == (0, 0)


class TestTheFirstDecision:
    """Two processes without anything between them but a store, and engines that disagree."""

    @staticmethod
    def rivals(store: Store, retention: Retention | None = None) -> tuple[Desk, Desk, Callable[[], None]]:
        gates = asyncio.Event(), asyncio.Event()
        slow, fast = (
            Desk(FakeEngine(seed=seed, gate=gate), store, retention or Retention())
            for seed, gate in enumerate(gates)
        )

        def release_slow() -> None:
            gates[0].set()

        gates[1].set()
        return slow, fast, release_slow

    async def test_stands_when_a_slower_one_comes_in_and_both_callers_get_it(self):
        slow, fast, release_slow = self.rivals(MemoryStore(max_entries=10))
        waiting = asyncio.create_task(slow.ask())
        while not slow.engine.runs:
            await asyncio.sleep(0)
        first = await fast.ask()
        release_slow()

        second = await waiting

        assert first == (Source.MODEL, second[1])
        assert second[0] is Source.REPLAY
        assert slow.cache.stats().tally.conflicts == 1
        assert fast.cache.stats().tally.conflicts == 0
        assert await slow.ask() == await fast.ask() == (Source.REPLAY, first[1])

    async def test_that_expired_makes_room_for_the_next(self):
        slow, fast, release_slow = self.rivals(MemoryStore(max_entries=10), Retention(ttl_s=10.0))
        release_slow()
        _, old = await fast.ask()
        slow.now = fast.now = 1_010.0

        source, new = await slow.ask()

        assert (source, new == old) == (Source.MODEL, False)
        assert await fast.ask() == (Source.REPLAY, new)

    async def test_is_not_kept_with_a_time_to_live_of_zero(self):
        desk = Desk(retention=Retention(ttl_s=0))

        assert [source for source, _ in (await desk.ask(), await desk.ask())] == [Source.MODEL] * 2
        assert await desk.store.count(desk.now) == 0


class TestAnEngineThat:
    @pytest.mark.parametrize("error", [EngineUnavailable("full"), EngineFailed("x")])
    async def test_raises_an_error_of_ours_is_quoted(self, error):
        with pytest.raises(type(error)) as raised:
            await Desk(engine=Raising(error)).ask()

        assert raised.value is error

    @pytest.mark.parametrize("error", [ValueError("secret"), TimeoutError(), KeyError("q")])
    async def test_raises_anything_else_has_failed(self, error):
        with pytest.raises(EngineFailed) as raised:
            await Desk(engine=Raising(error)).ask()

        assert raised.value.why == type(error).__name__
        assert raised.value.__cause__ is error

    async def test_hangs_is_given_up(self):
        desk = Desk(engine=FakeEngine(gate=asyncio.Event()), admission=Admission(deadline_s=0.01))

        with pytest.raises(DeadlineExceeded):
            await desk.ask()

    async def test_fails_once_fails_its_first_caller_and_is_asked_again_for_the_others(self):
        failures: list[Exception] = [ValueError("once")]
        desk = Desk(engine=FakeEngine(fails=lambda item: failures.pop() if failures else None))

        first, *others = await asyncio.gather(*(desk.ask() for _ in range(3)), return_exceptions=True)

        assert isinstance(first, EngineFailed)
        assert [isinstance(other, tuple) and other[0] for other in others] == [Source.COALESCED] * 2
        assert desk.engine.runs == 2
        assert await desk.store.count(desk.now) == 1

    async def test_fails_twice_fails_all_who_waited_and_nobody_else(self):
        failures: list[Exception] = [ValueError("once"), ValueError("twice")]
        desk = Desk(engine=FakeEngine(fails=lambda item: failures.pop() if failures else None))

        outcomes = await asyncio.gather(*(desk.ask() for _ in range(3)), return_exceptions=True)

        assert [type(outcome) for outcome in outcomes] == [EngineFailed] * 3
        assert (await desk.ask())[0] is Source.MODEL

    async def test_fails_one_question_of_two_has_decided_nothing(self, desk):
        desk = Desk(engine=FakeEngine(fails=lambda item: ValueError() if item.question.size == 1 else None))
        mixed = {"good": NOUL, "bad": {"type": "choice", "criteria": {"a": None}}}

        with pytest.raises(EngineFailed):
            await desk.ask(encode({"model": "m", "state": "s", "questions": mixed}))

        assert await desk.store.count(desk.now) == 0


class Raising(FakeEngine):
    """An engine that raises."""

    def __init__(self, error: Exception) -> None:
        super().__init__()
        self._error = error

    async def answer(self, items: Sequence[Item]) -> list[Reading | Exception]:
        raise self._error


READING = Reading((0.5, 0.5))


class TestCompleteness:
    def test_as_many_readings_as_questions_are_complete(self):
        assert complete([READING] * 3, 3) == [READING] * 3

    @pytest.mark.parametrize("count", [0, 1, 3])
    def test_any_other_number_is_a_failure(self, count):
        with pytest.raises(EngineFailed, match=f"{count} readings for 2 questions"):
            complete([READING] * count, 2)

    def test_an_error_of_ours_among_them_is_raised_as_it_is(self):
        error = EngineUnavailable("full")

        with pytest.raises(EngineUnavailable) as raised:
            complete([READING, error], 2)

        assert raised.value is error

    def test_any_other_error_among_them_is_a_failure_of_the_engine(self):
        with pytest.raises(EngineFailed, match="ValueError"):
            complete([ValueError("secret"), READING], 2)


class TestTerms:
    async def test_no_cache_asks_the_engine_and_leaves_the_precedent(self):
        desk = Desk()
        _, precedent = await desk.ask()
        desk.engine = FakeEngine(seed=1)
        fickle = Desk(engine=FakeEngine(seed=1), store=desk.store)

        source, fresh = await fickle.ask(terms=Terms(no_cache=True))

        assert (source, fresh == precedent) == (Source.MODEL, False)
        assert await fickle.ask() == (Source.REPLAY, precedent)

    async def test_no_cache_does_not_join_a_flight_that_would_take_a_stored_decision(self):
        gate = asyncio.Event()
        desk = Desk(engine=FakeEngine(gate=gate))
        callers = [asyncio.create_task(desk.ask(terms=terms)) for terms in (Terms(), Terms(no_cache=True))]
        while desk.engine.runs < 2:
            await asyncio.sleep(0)

        gate.set()
        _, fresh = await asyncio.gather(*callers)

        assert fresh[0] is Source.MODEL

    async def test_no_store_answers_and_keeps_nothing(self, desk):
        assert (await desk.ask(terms=Terms(no_store=True)))[0] is Source.MODEL
        assert await desk.store.count(desk.now) == 0
        assert (await desk.ask())[0] is Source.MODEL

    async def test_no_store_may_be_answered_by_what_is_stored(self, desk):
        await desk.ask()

        assert (await desk.ask(terms=Terms(no_store=True)))[0] is Source.REPLAY

    async def test_only_if_cached_never_asks_the_engine(self, desk):
        wanted = Terms(only_if_cached=True)
        with pytest.raises(NotCached):
            await desk.ask(terms=wanted)
        assert desk.engine.runs == 0

        await Desk(store=desk.store).ask()

        assert (await desk.ask(terms=wanted))[0] is Source.REPLAY

    async def test_a_decision_older_than_max_age_is_not_good_enough(self, desk):
        _, precedent = await desk.ask()
        desk.now += 5

        assert desk.decider.replay(BODY, desk.lane(), desk.now, Terms(max_age_s=5)) is not None
        assert desk.decider.replay(BODY, desk.lane(), desk.now, Terms(max_age_s=4)) is None
        assert (await desk.ask(terms=Terms(max_age_s=5)))[0] is Source.REPLAY
        assert (await desk.ask(terms=Terms(max_age_s=4)))[0] is Source.MODEL
        assert await desk.ask() == (Source.REPLAY, precedent)

    @pytest.mark.parametrize("body", [BODY, b"not even JSON"])
    async def test_expired_evidence_is_refused_before_anything_else(self, desk, body):
        terms = Terms(evidence_valid_until=desk.now)

        with pytest.raises(EvidenceExpired):
            await desk.ask(body, terms)
        with pytest.raises(EvidenceExpired):
            desk.decider.replay(body, desk.lane(), desk.now, terms)
        assert desk.engine.runs == 0

    async def test_evidence_that_expires_during_the_work_is_answered_and_not_kept(self):
        gate = asyncio.Event()
        desk = Desk(engine=FakeEngine(gate=gate))
        asked = asyncio.create_task(
            desk.decider.decide(BODY, desk.lane(), Terms(evidence_valid_until=1_005.0))
        )
        while not desk.engine.runs:
            await asyncio.sleep(0)
        desk.now = 1_005.0
        gate.set()

        outcome = await asked

        assert (outcome.source, outcome.stored) == (Source.MODEL, False)
        assert await desk.store.count(desk.now) == 0

    async def test_a_decision_does_not_outlive_its_evidence(self, desk):
        await desk.ask(terms=Terms(evidence_valid_until=1_005.0))
        assert (await desk.ask())[0] is Source.REPLAY

        desk.now = 1_005.0

        assert (await desk.ask())[0] is Source.MODEL


class TestTheReply:
    async def test_of_the_first_caller_counts_the_tokens_and_of_a_replay_none(self, desk):
        outcome = await desk.decider.decide(BODY, desk.lane())
        first, again = (
            json.loads(o.body(1_007.25)) for o in (outcome, replace(outcome, source=Source.REPLAY))
        )

        assert (first["usage"]["input_tokens"], again["usage"]["input_tokens"]) == (2, 0)
        assert first["answers"] == again["answers"]
        assert (first["x_precedent"]["age_s"], again["x_precedent"]["age_s"]) == (0.0, 7.25)

    async def test_of_a_caller_who_joined_says_so(self, desk):
        outcome = await desk.decider.decide(BODY, desk.lane())

        body = json.loads(replace(outcome, source=Source.COALESCED).body(1_000.0))

        assert body["x_precedent"]["source"] == "coalesced"

    async def test_is_never_younger_than_new_when_clocks_disagree(self, desk):
        outcome = await desk.decider.decide(BODY, desk.lane())

        assert json.loads(replace(outcome, source=Source.REPLAY).body(990.0))["x_precedent"]["age_s"] == 0.0


async def test_draining_waits_for_what_is_being_computed():
    gate = asyncio.Event()
    desk = Desk(engine=FakeEngine(gate=gate))
    asked = asyncio.create_task(desk.ask())
    while not desk.engine.runs:
        await asyncio.sleep(0)
    drained = asyncio.create_task(desk.decider.drain())
    await asyncio.sleep(0)
    assert not drained.done()

    gate.set()
    await drained

    assert await desk.store.count(desk.now) == 1
    assert (await asked)[0] is Source.MODEL


class TestWhenTheEngineIsBusy:
    async def test_a_new_decision_beyond_the_bound_is_shed_and_says_when_to_come_back(self):
        desk, waiting = await self.busy()

        with pytest.raises(Overloaded) as caught:
            await desk.ask(encode(json.loads(BODY) | {"state": "another"}))

        assert caught.value.retry_after_s == 2.5
        await self.finish(desk, waiting)

    async def test_replays_from_memory_and_from_the_store_are_not_shed(self):
        store = MemoryStore(max_entries=100)
        in_store = encode(json.loads(BODY) | {"state": "in the store"})
        await Desk(store=store).ask(in_store)
        desk, waiting = await self.busy(store)

        assert (await desk.ask(in_store))[0] is Source.REPLAY
        assert (await desk.ask(in_store))[0] is Source.REPLAY
        await self.finish(desk, waiting)

    async def test_who_asks_what_is_being_decided_joins(self):
        desk, waiting = await self.busy()

        joined = asyncio.create_task(desk.ask())
        await asyncio.sleep(0)
        await self.finish(desk, waiting)

        assert (await joined)[0] is Source.COALESCED

    async def test_a_place_is_free_once_a_decision_is_made(self):
        desk, waiting = await self.busy()
        await self.finish(desk, waiting)

        assert (await desk.ask(encode(json.loads(BODY) | {"state": "another"})))[0] is Source.MODEL

    async def busy(self, store=None):
        engine = FakeEngine(gate=asyncio.Event())
        admission = Admission(deadline_s=60.0, max_computing=1, retry_after_s=2.5)
        desk = Desk(engine=engine, store=store or MemoryStore(max_entries=100), admission=admission)
        waiting = asyncio.create_task(desk.ask())
        while not engine.runs:
            await asyncio.sleep(0)
        return desk, waiting

    async def finish(self, desk, waiting):
        desk.engine._gate.set()
        await waiting


class TestAPurgeWhileADecisionIsMade:
    async def test_is_not_outlived_by_the_decision_for_those_who_come_after_it(self):
        gate = asyncio.Event()
        engine = FakeEngine(gate=gate)
        desk = Desk(engine=engine)
        before = asyncio.create_task(desk.ask())
        while not engine.runs:
            await asyncio.sleep(0)

        await desk.cache.purge(Scope(tenant=ME.tenant), desk.now)
        after = asyncio.create_task(desk.ask())
        await asyncio.sleep(0)
        gate.set()

        assert (await before)[0] is Source.MODEL
        assert (await after)[0] is Source.MODEL
        assert engine.runs == 2
        assert (await desk.ask())[0] is Source.REPLAY


class TestTenantsWithAModeOfTheirOwn:
    def decider(self, desk):
        return Decider(
            contract=Contract(("m",)),
            engine=desk.engine,
            cache=desk.cache,
            clock=lambda: desk.now,
            tenant_caches={mode.value: view(desk.cache, mode) for mode in Mode},
        )

    async def ask(self, decider, tenant):
        return await decider.decide(BODY, decider.lane(Identity(tenant, "app")))

    async def test_off_computes_each_time_and_keeps_nothing(self, desk):
        decider = self.decider(desk)

        outcomes = [await self.ask(decider, "off") for _ in range(2)]

        assert [(o.source, o.stored) for o in outcomes] == [(Source.MODEL, False)] * 2
        assert await desk.store.count(desk.now) == 0

    async def test_shadow_computes_each_time_and_counts_what_a_replay_would_have_said(self, desk):
        decider = self.decider(desk)

        outcomes = []
        for _ in range(3):
            outcomes.append(await self.ask(decider, "shadow"))
            desk.now += 1

        assert [o.source for o in outcomes] == [Source.MODEL] * 3
        shadow = desk.cache.stats("shadow").tally.shadow
        assert (shadow.compared, shadow.equal, shadow.flipped) == (2, 2, 0)

    async def test_a_tenant_that_is_not_named_has_the_mode_of_the_app(self, desk):
        decider = self.decider(desk)

        outcomes = [await self.ask(decider, "somebody") for _ in range(2)]

        assert [o.source for o in outcomes] == [Source.MODEL, Source.REPLAY]
