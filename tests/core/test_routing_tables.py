"""What a table answers, what it leaves to the engine, and under which key either is kept."""

import asyncio
import json
from dataclasses import dataclass, field
from math import inf
from typing import Any

import numpy as np
import pytest

from core.cache.cache import DecisionCache
from core.cache.fences import Scope
from core.cache.stores.memory import MemoryStore
from core.contract.request import Contract
from core.contract.strict_json import encode
from core.contract.terms import Terms
from core.engines.fake import FakeEngine
from core.errors import EngineUnavailable, InvalidRequest, TaskNotFound
from core.identity import Identity
from core.outcome import Outcome, Source
from core.routing import Decider, Tables
from core.tasks.record import State
from core.tasks.registry import Here, Registry
from tests.core.tasks.tables import CHOICE, ScriptedTable, record

ME = Identity("acme", "app")
OTHER = {"type": "noul", "instructions": "Is it urgent?"}


def body(state: Any = "sure", questions: Any = None, **members: Any) -> bytes:
    return encode({"model": "m", "state": state, "questions": questions or {"team": CHOICE}} | members)


@dataclass
class Desk:
    """A Decider over parts that a test can look at."""

    engine: FakeEngine = field(default_factory=FakeEngine)
    registry: Registry = field(default_factory=Registry)
    store: MemoryStore = field(default_factory=lambda: MemoryStore(max_entries=100))
    answer_first: bool = False
    encoder_down: bool = False
    now: float = 1_000.0

    def __post_init__(self) -> None:
        self.encoded: list[str] = []
        self.decider = self.another_router()

    def another_router(self) -> Decider:
        return Decider(
            contract=Contract(("m",)),
            engine=self.engine,
            cache=DecisionCache(self.store),
            clock=lambda: self.now,
            tables=Tables(self.registry, self._encode, answer_first=self.answer_first),
        )

    async def _encode(self, texts: Any) -> Any:
        if self.encoder_down:
            raise EngineUnavailable("no replica")
        self.encoded += texts
        return [np.full(384, len(text), np.float32) for text in texts]

    async def ask(
        self,
        asked: bytes,
        terms: Terms | None = None,
        identity: Identity = ME,
        decider: Decider | None = None,
    ) -> Outcome:
        decider = decider or self.decider
        return await decider.decide(asked, decider.lane(identity), *([terms] if terms else []))

    def replay(self, asked: bytes) -> Any:
        return self.decider.replay(asked, self.decider.lane(ME), self.now)


@pytest.fixture
def desk() -> Desk:
    return Desk()


@pytest.fixture
def table(desk: Desk) -> ScriptedTable:
    table = ScriptedTable()
    desk.registry.apply(record(), table)
    return table


def answer(outcome: Outcome, question: str = "team") -> Any:
    return json.loads(outcome.decision.answers)[question]


class TestACertifiedAnswer:
    async def test_is_given_by_the_table_and_says_so(self, desk, table):
        outcome = await desk.ask(body("sure"))

        assert outcome.source is Source.TABLE
        assert answer(outcome) == {
            "type": "choice",
            "choice": "billing",
            "probabilities": {"billing": 0.9, "sales": 0.1},
            "confidence": 0.8,
            "answered_by": "table",
            "certified": True,
            "certificate": "support#0123456789ab",
            "certificate_kind": "gold",
        }
        assert desk.engine.runs == 0

    async def test_costs_no_tokens(self, desk, table):
        assert (await desk.ask(body("sure"))).usage == (0, 0)

    async def test_is_stored_with_its_task_and_table_version(self, desk, table):
        decision = (await desk.ask(body("sure"))).decision

        assert decision.tasks == ("support",)
        assert decision.table_versions == ("support@1",)
        assert decision.answered_by == {"team": "table"}
        assert await desk.store.count(desk.now) == 1

    async def test_is_replayed_byte_for_byte_by_its_body_alone(self, desk, table):
        first = await desk.ask(body("sure"))

        replayed = desk.replay(body("sure"))

        assert replayed is not None
        assert replayed.answers == first.decision.answers
        assert table.asked == ["sure"]

    async def test_gives_way_to_an_earlier_decision_of_another_router(self, desk, table):
        earlier = await desk.ask(body("sure"))
        table.probabilities = (0.2, 0.8)

        later = await desk.ask(body("sure"), decider=desk.another_router())

        assert later.source is Source.REPLAY
        assert later.decision.answers == earlier.decision.answers

    async def test_takes_one_round_trip_to_the_store(self, desk, table, monkeypatch):
        looked_up = []
        get_many = desk.store.get_many

        async def watched(keys, now):
            looked_up.append(keys)
            return await get_many(keys, now)

        monkeypatch.setattr(desk.store, "get_many", watched)
        await desk.ask(body("sure"))

        assert looked_up == []

    async def test_is_given_once_to_those_who_ask_together(self, desk, table):
        outcomes = await asyncio.gather(*(desk.ask(body("sure")) for _ in range(5)))

        assert len({outcome.decision.answers for outcome in outcomes}) == 1
        assert table.asked == ["sure"]

    async def test_is_not_replayed_once_its_version_is_purged(self, desk, table):
        await desk.ask(body("sure"))
        await desk.decider.lane(ME).cache.purge(Scope(tenant="acme", table_version="support@1"), desk.now)

        assert desk.replay(body("sure")) is None
        assert (await desk.ask(body("sure"))).source is Source.TABLE

    async def test_is_made_afresh_for_who_wants_no_stored_one_and_leaves_the_precedent(self, desk, table):
        first = await desk.ask(body("sure"))
        table.probabilities = (0.2, 0.8)

        fresh = await desk.ask(body("sure"), Terms(no_cache=True))

        assert fresh.source is Source.TABLE
        assert answer(fresh)["choice"] == "sales"
        assert (await desk.ask(body("sure"))).decision.answers == first.decision.answers

    async def test_is_kept_nowhere_for_who_wants_it_kept_nowhere(self, desk, table):
        outcome = await desk.ask(body("sure"), Terms(no_store=True))

        assert outcome.source is Source.TABLE
        assert not outcome.stored
        assert await desk.store.count(desk.now) == 0

    async def test_is_settled_afterwards_where_the_operator_says_so(self):
        desk = Desk(answer_first=True)
        desk.registry.apply(record(), ScriptedTable())

        outcome = await desk.ask(body("sure"))
        await desk.decider.drain()

        assert (outcome.source, outcome.stored) == (Source.TABLE, False)
        assert await desk.store.count(desk.now) == 1
        assert desk.replay(body("sure")) is not None


class TestTheEngineAnswers:
    @pytest.mark.parametrize(
        ("state", "reason"), [("unsure", "below_threshold"), ("never seen", "too_little_known")]
    )
    async def test_what_is_not_certified_with_the_reason(self, desk, table, state, reason):
        outcome = await desk.ask(body(state))

        assert outcome.source is Source.MODEL
        given = answer(outcome)
        assert (given["answered_by"], given["certified"]) == ("model", False)
        assert given["certified_reason"] == reason
        assert given["certificate"] == "support#0123456789ab"
        assert outcome.decision.table_versions == ()

    @pytest.mark.parametrize(
        ("fields", "here", "reason"),
        [
            ({}, Here(State.UNAVAILABLE, "the encoder is another one"), "table_unavailable"),
            ({}, Here(State.TIMING, "until there are texts"), "being_timed"),
            ({}, Here(State.OFF, "it saves too little here"), "not_worth_it"),
            ({"table": None, "state": State.OFF}, None, "no_table"),
            ({"state": State.OFF}, None, "no_table"),
            ({"threshold": inf, "state": State.OFF}, None, "nothing_certified"),
        ],
    )
    async def test_while_the_table_may_not(self, desk, fields, here, reason):
        table = ScriptedTable()
        desk.registry.apply(record(**fields), table, here)

        assert answer(await desk.ask(body("sure")))["certified_reason"] == reason
        assert table.asked == []

    @pytest.mark.parametrize(
        ("question", "reason"),
        [
            (CHOICE | {"criteria": {"sales": None, "billing": None}}, "options_changed"),
            (CHOICE | {"criteria": {"billing": None, "sales": None, "other": None}}, "options_changed"),
            ({"type": "noul", "instructions": "Which team?"}, "options_changed"),
            (CHOICE | {"instructions": "Which desk?"}, "question_changed"),
            (CHOICE | {"criteria": {"billing": "money", "sales": None}}, "question_changed"),
        ],
    )
    async def test_a_changed_question_under_the_tasks_name(self, desk, table, question, reason):
        given = answer(await desk.ask(body("sure", {"team": question}, task="support")))

        assert (given["answered_by"], given["certified_reason"]) == ("model", reason)
        assert table.asked == []

    async def test_the_other_questions_of_a_request_only(self, desk, table):
        outcome = await desk.ask(body("sure", {"team": CHOICE, "urgent": OTHER}))

        assert outcome.source is Source.MODEL
        assert outcome.decision.answered_by == {"team": "table"}
        assert outcome.decision.table_versions == ("support@1",)
        assert [item.question.instructions for item in desk.engine.batches[0]] == ["Is it urgent?"]
        assert "answered_by" not in answer(outcome, "urgent")
        assert answer(outcome)["certified"] is True

    async def test_a_question_that_no_task_registered_without_a_word_about_tasks(self, desk, table):
        outcome = await desk.ask(body("sure", {"urgent": OTHER}))

        assert answer(outcome, "urgent").keys() == {"type", "noul"}
        assert outcome.decision.tasks == ()


class TestATaskIsSelected:
    async def test_by_its_name_alone(self, desk, table):
        asked = encode({"model": "m", "state": "sure", "task": "support"})

        outcome = await desk.ask(asked)

        assert outcome.source is Source.TABLE
        assert answer(outcome)["choice"] == "billing"
        assert desk.replay(asked) is not None

    async def test_by_its_question_under_any_id_and_in_any_spelling(self, desk, table):
        spelled = {"criteria": CHOICE["criteria"], "instructions": "Which team?", "type": "choice", "note": 1}

        assert (await desk.ask(body("sure", {"x": spelled}))).source is Source.TABLE

    async def test_of_several_with_one_question_the_first_registered(self, desk, table):
        twin = ScriptedTable(probabilities=(0.3, 0.7))
        desk.registry.apply(record("twin", created_at=2.0), twin)

        assert answer(await desk.ask(body("sure")))["choice"] == "billing"
        assert answer(await desk.ask(body("sure", task="twin")))["choice"] == "sales"

    async def test_never_for_another_tenant(self, desk, table):
        stranger = Identity("umbrella", "app")

        assert (await desk.ask(body("sure"), identity=stranger)).source is Source.MODEL
        with pytest.raises(TaskNotFound):
            await desk.ask(body("sure", task="support"), identity=stranger)

    async def test_or_refused_when_nobody_registered_it(self, desk, table):
        with pytest.raises(TaskNotFound, match="nothing"):
            await desk.ask(body("sure", task="nothing"))
        with pytest.raises(InvalidRequest, match="task"):
            await desk.ask(body("sure", task=7))

    async def test_in_a_batch_for_each_item_alone(self, desk, table):
        items = [
            json.loads(body("sure")),
            json.loads(body("sure", task="nothing")),
            json.loads(body("unsure")),
        ]

        settled = await desk.decider.decide_batch(encode({"requests": items}), desk.decider.lane(ME))

        assert [type(one).__name__ for one in settled] == ["Outcome", "TaskNotFound", "Outcome"]
        assert settled[0].source is Source.TABLE


class TestTheContext:
    async def test_is_read_by_the_engine_before_the_state_and_never_by_the_table(self, desk):
        table = ScriptedTable()
        desk.registry.apply(record(context="We sell bread."), table)

        await desk.ask(body("unsure"))

        assert table.asked == ["unsure"]
        assert desk.engine.batches[0][0].state == "We sell bread.\n\nunsure"

    async def test_makes_another_decision_when_it_changes(self, desk):
        desk.registry.apply(record(context="We sell bread."), ScriptedTable())
        one = await desk.ask(body("unsure"))
        desk.registry.apply(record(context="We sell cars."), ScriptedTable())

        other = await desk.ask(body("unsure"))

        assert other.source is Source.MODEL
        assert other.decision.key != one.decision.key
        desk.registry.apply(record(context="We sell bread."), ScriptedTable())
        assert (await desk.ask(body("unsure"))).source is Source.REPLAY

    async def test_at_the_beginning_of_a_state_is_warned_of_each_time(self, desk):
        desk.registry.apply(record(context="We sell bread."), ScriptedTable())
        asked = body("We sell bread. Where is my order?")

        for _ in range(2):
            assert desk.replay(asked) is None
            assert "begins with the context" in ((await desk.ask(asked)).warning or "")


class TestRegistering:
    async def test_makes_new_keys_so_that_decisions_from_before_are_not_taken_for_the_tasks(self, desk):
        before = await desk.ask(body("sure"))
        desk.registry.apply(record(), ScriptedTable())

        assert desk.replay(body("sure")) is None
        after = await desk.ask(body("sure"))

        assert after.source is Source.TABLE
        assert after.decision.key != before.decision.key

    async def test_a_refitted_table_changes_no_answer_that_was_given(self, desk, table):
        first = await desk.ask(body("sure"))
        desk.registry.apply(record(), ScriptedTable(probabilities=(0.1, 0.9)))

        again = await desk.ask(body("sure"))

        assert again.source is Source.REPLAY
        assert again.decision.answers == first.decision.answers

    async def test_leaves_the_decisions_about_other_questions_where_they_are(self, desk):
        asked = body("sure", {"urgent": OTHER})
        await desk.ask(asked)
        desk.registry.apply(record(), ScriptedTable())

        assert (await desk.ask(asked)).source is Source.REPLAY
        assert desk.replay(asked) is not None

    async def test_and_removing_again_leads_back_to_the_decisions_from_before(self, desk):
        before = await desk.ask(body("sure"))
        desk.registry.apply(record(), ScriptedTable())
        desk.registry.remove("acme", "support")

        replayed = desk.replay(body("sure"))

        assert replayed is not None
        assert replayed.key == before.decision.key


class TestATableThatNeedsAVector:
    @pytest.fixture
    def encoder_table(self, desk):
        table = ScriptedTable(kind="encoder")
        desk.registry.apply(record(kind="encoder"), table)
        return table

    async def test_answers_with_the_vector_of_the_state(self, desk, encoder_table):
        outcome = await desk.ask(body("sure"))

        assert outcome.source is Source.TABLE
        assert desk.encoded == ["sure"]
        assert encoder_table.vectors[0][0] == len("sure")
        assert desk.engine.runs == 0

    async def test_leaves_what_it_may_not_answer_to_the_engine(self, desk, encoder_table):
        assert answer(await desk.ask(body("unsure")))["certified_reason"] == "below_threshold"
        assert desk.engine.runs == 1

    async def test_is_passed_over_while_no_encoder_can_be_reached(self, desk, encoder_table):
        desk.encoder_down = True

        outcome = await desk.ask(body("sure"))

        assert outcome.source is Source.MODEL
        assert answer(outcome)["certified_reason"] == "encoder_unavailable"

    async def test_is_asked_after_the_store(self, desk, encoder_table):
        await desk.ask(body("sure"))

        again = await desk.ask(body("sure"), decider=desk.another_router())

        assert again.source is Source.REPLAY
        assert desk.encoded == ["sure"]
