"""What headers say about one call: revisions, deadlines, caching, thresholds."""

import json

import pytest

from core.cache.retention import Retention
from core.cache.stores.memory import MemoryStore
from core.engines.fake import FakeEngine
from tests.deployments.asgi import JSON_HEADERS, call
from tests.deployments.serving import Serving

BODY = json.dumps(
    {
        "model": "jev-latest",
        "state": "I was charged twice.",
        "questions": {"refund": {"type": "noul", "instructions": "Is a refund due?"}},
    }
).encode()


class Clock:
    """A clock that stands still until it is moved."""

    def __init__(self, now=1_000_000.0):
        self.now = now

    def __call__(self):
        return self.now


@pytest.fixture
def clock():
    return Clock()


@pytest.fixture
def engine():
    return FakeEngine()


@pytest.fixture
def app(clock, engine):
    return Serving(engine=engine, clock=clock).app()


async def ask(app, *headers, body=BODY):
    pairs = [(name.encode(), value.encode()) for name, value in headers]
    return await call(app, body, headers=[*JSON_HEADERS, *pairs])


def source(reply):
    return reply.json["x_precedent"]["source"]


def answers(reply):
    return reply.json["answers"]


class TestRevisions:
    @pytest.mark.parametrize("header", ["x-precedent-evidence-revision", "x-precedent-contract-revision"])
    async def test_another_revision_is_another_decision(self, app, header):
        seen = [source(await ask(app, (header, revision))) for revision in ("1", "2", "1", "2")]

        assert seen == ["model", "model", "replay", "replay"]

    async def test_no_revision_is_not_an_empty_one(self, app):
        await ask(app)

        refused = await ask(app, ("x-precedent-evidence-revision", ""))

        assert refused.status == 400

    async def test_evidence_and_contract_are_not_confused(self, app):
        await ask(app, ("x-precedent-evidence-revision", "7"))

        other = await ask(app, ("x-precedent-contract-revision", "7"))

        assert source(other) == "model"


class TestEvidenceThatExpires:
    async def test_expired_evidence_is_refused_before_any_inference(self, app, engine, clock):
        reply = await ask(app, ("x-precedent-evidence-valid-until", str(clock.now)))

        assert reply.status == 409
        assert reply.json["detail"]["error_type"] == "api_usage_error"
        assert "evidence was valid until" in reply.json["detail"]["message"]
        assert engine.runs == 0

    async def test_expired_evidence_is_refused_even_where_a_decision_is_stored(self, app, clock):
        until = ("x-precedent-evidence-valid-until", str(clock.now + 10))
        await ask(app, until)

        clock.now += 10

        assert (await ask(app, until)).status == 409

    async def test_a_decision_is_not_replayed_beyond_its_evidence(self, app, clock):
        await ask(app, ("x-precedent-evidence-valid-until", str(clock.now + 10)))
        before = await ask(app, ("x-precedent-evidence-valid-until", str(clock.now + 100)))

        clock.now += 10.001

        after = await ask(app, ("x-precedent-evidence-valid-until", str(clock.now + 100)))
        assert (source(before), source(after)) == ("replay", "model")

    async def test_evidence_that_expires_during_the_work_is_answered_and_not_stored(self, clock):
        class Slow(FakeEngine):
            async def answer(self, items):
                clock.now += 60
                return await super().answer(items)

        engine = Slow()
        app = Serving(engine=engine, clock=clock).app()

        reply = await ask(app, ("x-precedent-evidence-valid-until", str(clock.now + 30)))

        assert reply.status == 200
        assert reply.json["x_precedent"]["stored"] is False
        assert b"stored" not in reply.header(b"cache-status")
        assert source(await ask(app)) == "model"


class TestCacheControl:
    async def test_only_if_cached_gets_a_stored_decision_or_504(self, app, engine):
        nothing = await ask(app, ("cache-control", "only-if-cached"))
        await ask(app)
        stored = await ask(app, ("cache-control", "only-if-cached"))

        assert nothing.status == 504
        assert source(stored) == "replay"
        assert engine.runs == 1

    async def test_only_if_cached_finds_what_another_router_stored(self, engine, clock):
        store = MemoryStore()
        await ask(Serving(engine=engine, store=store, clock=clock).app())

        reply = await ask(
            Serving(engine=engine, store=store, clock=clock).app(), ("cache-control", "only-if-cached")
        )

        assert source(reply) == "replay"

    async def test_no_cache_computes_afresh_and_leaves_the_precedent_standing(self, clock):
        seeds = iter(range(10))

        class Moody(FakeEngine):
            async def answer(self, items):
                self._seed = next(seeds)
                return await super().answer(items)

        app = Serving(engine=Moody(), clock=clock).app()
        first = await ask(app)

        fresh = await ask(app, ("cache-control", "no-cache"))
        again = await ask(app)

        assert source(fresh) == "model"
        assert answers(fresh) != answers(first)
        assert fresh.json["x_precedent"]["stored"] is False
        assert fresh.header(b"cache-status") == b"precedent; fwd=request"
        assert answers(again) == answers(first)

    async def test_no_cache_stores_where_nothing_stands(self, app):
        await ask(app, ("cache-control", "no-cache"))

        assert source(await ask(app)) == "replay"

    async def test_no_store_answers_and_keeps_nothing(self, app):
        first = await ask(app, ("cache-control", "no-store"))
        second = await ask(app)

        assert (source(first), source(second)) == ("model", "model")
        assert first.json["x_precedent"]["stored"] is False

    async def test_no_store_may_be_answered_from_the_store(self, app):
        await ask(app)

        assert source(await ask(app, ("cache-control", "no-store"))) == "replay"

    async def test_max_age_takes_a_decision_up_to_that_age(self, app, clock):
        await ask(app)

        clock.now += 60

        assert source(await ask(app, ("cache-control", "max-age=60"))) == "replay"
        assert source(await ask(app, ("cache-control", "max-age=59"))) == "model"
        assert source(await ask(app)) == "replay"

    async def test_a_replay_says_its_age_and_how_long_it_lives(self, engine, clock):
        app = Serving(engine=engine, clock=clock, retention=Retention(ttl_s=100.0)).app()
        first = await ask(app)

        clock.now += 40.5
        replay = await ask(app)

        assert first.header(b"cache-status") == b"precedent; fwd=miss; stored"
        assert replay.header(b"age") == b"40"
        assert replay.header(b"cache-status") == b"precedent; hit; ttl=59"
        assert replay.json["x_precedent"]["age_s"] == 40.5

    async def test_a_directive_nobody_knows_changes_nothing(self, app):
        await ask(app)

        assert source(await ask(app, ("cache-control", "no-transform, x=1"))) == "replay"


class TestThresholds:
    async def test_a_threshold_changes_the_margin_and_nothing_else(self, app):
        first = await ask(app)
        p = answers(first)["refund"]["noul"]

        read = await ask(app, ("x-precedent-noul-threshold", "refund=0.9"))

        expected = (p - 0.9) / 0.1 if p >= 0.9 else (0.9 - p) / 0.9
        assert source(read) == "replay"
        assert read.json["x_precedent"]["margins"]["refund"] == pytest.approx(expected, abs=1e-6)
        assert read.json["x_precedent"]["key"] == first.json["x_precedent"]["key"]
        assert answers(read) == answers(first)

    async def test_a_threshold_is_not_remembered(self, app):
        await ask(app, ("x-precedent-noul-threshold", "refund=0.9"))
        plain = await ask(app)

        p = answers(plain)["refund"]["noul"]
        assert plain.json["x_precedent"]["margins"]["refund"] == pytest.approx(abs(2 * p - 1), abs=2e-6)

    async def test_a_threshold_for_a_question_of_another_kind_changes_nothing(self, app):
        choice = {"type": "choice", "criteria": dict.fromkeys("abc")}
        body = json.dumps({"model": "jev-latest", "state": "x", "questions": {"kind": choice}}).encode()
        plain = await ask(app, body=body)

        read = await ask(app, ("x-precedent-noul-threshold", "kind=0.9"), body=body)

        assert read.json["x_precedent"]["margins"] == plain.json["x_precedent"]["margins"]

    async def test_a_threshold_for_a_question_that_was_not_asked_is_ignored(self, app):
        reply = await ask(app, ("x-precedent-noul-threshold", "other=0.9"))

        assert list(reply.json["x_precedent"]["margins"]) == ["refund"]


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("x-precedent-evidence-valid-until", "soon"),
        ("x-precedent-noul-threshold", "refund=2"),
        ("cache-control", "max-age=soon"),
    ],
)
async def test_a_header_that_cannot_be_read_is_refused_by_name(app, engine, name, value):
    reply = await ask(app, (name, value))

    assert reply.status == 400
    assert name in reply.json["detail"]["message"]
    assert value not in reply.json["detail"]["message"]
    assert engine.runs == 0
