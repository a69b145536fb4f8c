"""A table from its first row to its withdrawal, over HTTP, with one Router or two over one store."""

import asyncio
import shutil
from copy import deepcopy
from dataclasses import replace
from zlib import crc32

import numpy as np
import pytest

from core.errors import EngineUnavailable, StoreUnavailable
from core.tables.guard import Timing
from core.tables.students import Fitted, StaticStudent
from core.tasks.record import Revocation
from core.tasks.record_json import decode as decode_record
from core.tasks.record_json import encode, names_objects
from core.tasks.refitter import learners
from core.tasks.rows import SERIES, decode
from core.tasks.stores.memory import MemoryTaskStore
from core.tasks.stores.rows import Series
from deployments.timing import Stopwatch
from tests.deployments.school import QUESTION, TOPICS, School
from tests.deployments.teacher import ToyTeacher
from tests.toy_language import static_vectors, texts_about


def traffic(n, seed=0):
    """So many distinct texts, of all topics in turn."""
    per_topic = [texts_about(topic, -(-n // 3), seed) for topic in range(3)]
    return [text for texts in zip(*per_topic, strict=True) for text in texts][:n]


@pytest.fixture
def school(tmp_path):
    return School(tmp_path / "tables", engine=ToyTeacher(), max_examples=100_000)


@pytest.fixture(scope="module")
def learned(tmp_path_factory):
    """Where a task has learned a table that serves: the store, and the folder of the node."""
    folder = tmp_path_factory.mktemp("learned")

    async def learn():
        school = School(folder, engine=ToyTeacher())
        await school.learn()
        await school.ask_all(traffic(260))
        (look,) = await school.refit()
        assert look.published, look.said
        await school.ask_all(traffic(20, seed=1))
        await school.until_timed()
        await school.watcher.flush()
        return school.store

    return asyncio.run(learn()), folder


@pytest.fixture
def taught(school, learned):
    """Have a task whose table serves, with such settings."""

    async def teach(**fast_table):
        store, folder = learned
        vars(school.store).update(deepcopy(vars(store)))
        shutil.copytree(folder, school.folder)
        await school.sync.refresh()
        reply = await school.learn(**fast_table)
        assert reply.json["status"]["state"] == "active"

    return teach


def router_beside(school, tmp_path):
    """Another Router of the same node over the same stores."""
    other = School(tmp_path / "tables", store=school.store, engine=ToyTeacher())
    other.serving.store = school.serving.store
    other.app = other._app()
    return other


async def changed(school, change, **fields):
    """The record as somebody else would write it: its table changed, and other fields."""
    entry = await school.store.get("default", "mail")
    before = decode_record(entry.value, "default", "mail", entry.version)
    assert before is not None
    assert before.table is not None
    after = replace(before.with_table(change(before.table)), **fields)
    await school.store.put("default", "mail", encode(after), entry.version, 1.0, names_objects(after))
    await school.sync.refresh()


async def promoted_again(school, *, timed=True, **fields):
    """The table that serves under a second number, as another refit would publish it."""
    if not timed:  # as of another table, which this host has not met
        school.timings._known.clear()
        for file in school.folder.glob("*.timing"):
            file.unlink()
    await changed(school, lambda ref: replace(ref, version=2, is_timed=timed), looks=2, **fields)


class Breakable(MemoryTaskStore):
    """A store that can be away."""

    is_down = False
    takes_no_rows = False

    async def add_rows(self, series, rows, max_rows):
        if self.takes_no_rows:
            raise StoreUnavailable("add_rows", "it is full")
        return await self._unless_down(super().add_rows(series, rows, max_rows))

    async def get(self, tenant, task_id):
        return await self._unless_down(super().get(tenant, task_id))

    async def put(self, *arguments):
        return await self._unless_down(super().put(*arguments))

    async def read(self, known):
        return await self._unless_down(super().read(known))

    async def _unless_down(self, doing):
        if not self.is_down:
            return await doing
        doing.close()
        raise StoreUnavailable("any", "it is down")


class Slow(Stopwatch):
    """Finds tables as slow as the engine."""

    async def time_table(self, table, texts):
        return Timing(1.0, 1.0, 1.0, 1.0)


class Broken(Stopwatch):
    """Finds no engine."""

    async def time_table(self, table, texts):
        raise EngineUnavailable("none is up")


async def rows(school, name):
    found = await school.store.read_rows(Series("default", "mail", name), 0, 100_000)
    made = [decode(one.value) for one in found]
    return [row for row in made if row is not None]


async def test_a_task_goes_from_learning_over_timing_to_active(school):
    shown = (await school.learn()).json
    assert shown["status"]["state"] == "learning"
    assert "0 rows" in (await school.show())["status"]["reason"]

    answers = await school.ask_all(traffic(400))
    assert {one["certified_reason"] for one in answers} == {"no_table"}
    await school.watcher.flush()
    assert (await school.show())["learning"]["rows_had"] == 400

    (look,) = await school.refit()
    assert look.published == 1
    assert (await school.show())["status"]["state"] == "timing"

    answers = await school.ask_all(traffic(20, seed=1))
    assert {one["answered_by"] for one in answers[:8]} == {"model"}
    await school.until_timed()
    shown = await school.show()
    assert shown["status"]["state"] == "active"
    assert shown["certificate"]["kind"] == "agreement"
    assert shown["timing"]["saving"] > 0.5

    answers = await school.ask_all(traffic(60, seed=2))
    assert sum(one["answered_by"] == "table" for one in answers) > 50


async def test_rows_hold_no_text_and_say_how_they_were_drawn(school):
    await school.learn()
    await school.ask_all(["lost my card please", "money back to the card refund"])
    await school.watcher.flush()

    stored = await school.store.read_rows(Series("default", "mail", "uniform"), 0, 10)
    assert not any(word in one.value for one in stored for word in (b"card", b"money", b"please"))
    made = await rows(school, "uniform")
    assert [row.drawn for row in made] == ["traffic", "traffic"]
    assert [row.top for row in made] == [0, 1]
    assert all(sorted(row.features) == row.features.tolist() for row in made)


async def test_a_row_has_the_key_of_its_answer_for_an_id(school):
    await school.learn()
    (answer,) = await school.ask_all(["lost my card please"])
    await school.watcher.flush()

    (stored,) = await school.store.read_rows(Series("default", "mail", "uniform"), 0, 10)
    assert stored.id == answer["key"]


async def test_a_replay_makes_no_row(school):
    await school.learn()
    await school.ask_all(["lost my card please"] * 5)
    await school.watcher.flush()

    assert len(await rows(school, "uniform")) == 1


async def test_a_request_that_is_not_to_be_stored_makes_no_row(school):
    await school.learn()
    await school.ask("lost my card please", (b"cache-control", b"no-store"))
    await school.watcher.flush()

    assert await rows(school, "uniform") == []


async def test_what_a_table_passes_on_may_not_certify_and_what_is_drawn_by_lot_may(school, taught):
    await taught(explore=0.3, spot_check=0.5)
    await school.watcher.flush()
    before = len(await rows(school, "uniform"))

    answers = await school.ask_all([*traffic(200, seed=3), *(f"to {n}" for n in range(12))])
    await school.watcher.drain()
    explored = [one for one in answers if one.get("certified_reason") == "explore"]
    passed = [one for one in answers if one["answered_by"] == "model" and one not in explored]
    by_table = [one for one in answers if one["answered_by"] == "table"]

    assert 30 < len(explored) < 100
    assert len(await rows(school, "uniform")) - before == len(explored)
    chosen = await rows(school, "chosen")
    checked = [row for row in chosen if row.drawn == "spot_check"]
    assert len([row for row in chosen if row.drawn == "passed"]) == len(passed) > 3
    assert 0.3 * len(by_table) < len(checked) < 0.7 * len(by_table)


async def test_an_explored_request_is_drawn_by_its_key_on_every_router(school, taught, tmp_path):
    await taught(explore=0.3)
    other = School(tmp_path / "tables", store=school.store, engine=ToyTeacher())
    await other.sync.refresh()

    one, two = [await each.ask_all(traffic(60, seed=4)) for each in (school, other)]

    assert [each["answered_by"] for each in one] == [each["answered_by"] for each in two]


async def test_an_explored_request_is_answered_by_the_decision_there_is(school, taught):
    await taught(explore=0.5)
    texts = traffic(40, seed=5)
    first = await school.ask_all(texts)
    school.engine.contrary = lambda text: True

    again = await school.ask_all(texts)

    assert {one["source"] for one in again} == {"replay"}
    assert [one["choice"] for one in again] == [one["choice"] for one in first]


async def test_an_engine_that_comes_to_differ_has_the_version_withdrawn_everywhere(school, taught, tmp_path):
    await taught(explore=0.0, spot_check=0.5)
    other = router_beside(school, tmp_path)
    await other.sync.refresh()
    texts = traffic(300, seed=6)
    answered = [one for one in await school.ask_all(texts[:30]) if one["answered_by"] == "table"]
    assert answered

    school.engine.contrary = lambda text: True
    for text in texts[30:]:
        await school.ask_all([text])
        await school.watcher.drain()
        if (await school.show())["status"]["state"] == "suspended":
            break
    await other.sync.refresh()

    for each in (school, other):
        shown = await each.show()
        assert shown["status"]["state"] == "suspended"
        assert "the engine gave" in shown["status"]["reason"]
        assert "certified anew" in shown["status"]["text"]
        again = await each.ask_all(texts[:30])
        assert {one["answered_by"] for one in again} == {"model"}
    assert shown["versions"][0]["revoked"]["is_final"]


async def test_spot_checks_go_on_while_a_version_is_suspended_and_change_nothing(school, taught):
    await taught()
    await school.suspend("default", "mail", 1, "somebody said so")
    await school.ask_all(traffic(60, seed=7))
    await school.watcher.flush()
    await school.sync.refresh()
    shown = await school.show()

    assert shown["versions"][0]["watch"]["error"]["checks"] > 40
    assert shown["status"]["state"] == "suspended"


async def test_time_does_not_bring_a_suspended_version_back_and_a_new_certificate_does(school, taught):
    await taught()
    school.now += 10.0
    await school.suspend("default", "mail", 1, "somebody said so")
    school.now += 1e9
    await school.sync.refresh()
    assert (await school.show())["status"]["state"] == "suspended"

    await school.ask_all(traffic(260, seed=8))
    (look,) = await school.refit()
    assert look.published == 2
    await school.ask_all(traffic(20, seed=9))
    await school.until_timed()

    shown = await school.show()
    assert shown["status"]["state"] == "active"
    assert [one["version"] for one in shown["versions"] if one["revoked"]] == [1]


async def test_after_a_suspension_no_row_from_before_it_certifies(school, taught):
    await taught()
    await school.ask_all(traffic(300, seed=10))
    school.now += 10.0
    await school.suspend("default", "mail", 1, "somebody said so")

    (look,) = await school.refit()

    assert look.published is None
    assert "0 rows that may certify" in look.said


async def test_an_answer_is_judged_by_what_was_served_by_the_version_that_served_it(school, taught):
    """Spot checks of version 1 that come in after version 2 was promoted say nothing about version 2."""
    await taught(explore=0.0, spot_check=0.9)
    school.engine.contrary = lambda text: True  # so every check finds the answer of version 1 wrong
    answers = await school.ask_all(traffic(12, seed=11))
    given = sum(one["answered_by"] == "table" for one in answers)
    assert given >= 6
    await promoted_again(school)
    assert (await school.show())["table"]["version"] == 2

    await school.watcher.drain()
    await school.sync.refresh()

    watched = {one["version"]: one["watch"] for one in (await school.show())["versions"]}
    assert watched[1]["error"]["errors"] == watched[1]["error"]["checks"] > 0
    assert watched[2] is None


async def test_in_shadow_mode_the_table_decides_the_engine_answers_and_agreement_is_counted(school, taught):
    await taught(mode="shadow")

    answers = await school.ask_all(traffic(100, seed=12))
    await school.watcher.flush()
    await school.sync.refresh()
    shown = await school.show()

    assert {(one["answered_by"], one["certified_reason"]) for one in answers} == {("model", "shadow")}
    assert shown["versions"][0]["watch"]["error"]["checks"] > 80
    assert shown["versions"][0]["watch"]["error"]["errors"] == 0
    assert len([row for row in await rows(school, "uniform") if row.drawn == "traffic"]) == 260 + 20 + 100


async def test_another_engine_is_not_what_the_certificate_is_about(school, taught, tmp_path):
    await taught()
    other = School(tmp_path / "tables", store=school.store, engine=ToyTeacher(seed=1))
    await other.sync.refresh()

    shown = await other.show()
    (answer,) = await other.ask_all(["lost my card please"])

    assert shown["status"]["state"] == "unavailable"
    assert "proven to agree with engine fake-0" in shown["status"]["reason"]
    assert (answer["answered_by"], answer["certified_reason"]) == ("model", "table_unavailable")
    await other.watcher.flush()
    (look,) = await other.refit()
    assert "1 rows that may certify" in look.said  # those that the other engine answered are not its own


class TestRollingBack:
    @pytest.fixture
    async def two_versions(self, school, taught):
        await taught()
        school.now += 10.0
        await school.ask_all(traffic(100, seed=20))
        await school.suspend("default", "mail", 1, "somebody said so")
        school.now += 10.0
        await school.ask_all(traffic(300, seed=21))
        await school.refit()
        await school.ask_all(traffic(20, seed=22))
        await school.until_timed()
        return school

    async def test_serves_another_version_and_no_longer_replays_what_the_one_that_was_left_answered(
        self, school, taught, tmp_path
    ):
        await taught()
        await promoted_again(school)
        other = router_beside(school, tmp_path)
        await other.sync.refresh()
        texts = traffic(30, seed=23)
        before = await school.ask_all(texts)
        assert {one["certificate"].split("#")[0] for one in before} == {"mail"}

        reply = await school.send("POST", "/v1/tasks/mail/fast_table/rollback", {"version": 1})
        await other.sync.refresh()

        assert reply.status == 200
        for each in (school, other):
            shown = await each.show()
            assert (shown["table"]["version"], shown["status"]["state"]) == (1, "active")
            assert "rolled back from version 2 to version 1" in shown["status"]["reason"]
        again = await other.ask_all(texts)
        by_table = [two for one, two in zip(before, again, strict=True) if one["answered_by"] == "table"]
        assert by_table
        assert "replay" not in {one["source"] for one in by_table}

    async def test_can_be_undone(self, school, taught):
        await taught()
        await promoted_again(school)
        await school.send("POST", "/v1/tasks/mail/fast_table/rollback", {"version": 1})

        reply = await school.send("POST", "/v1/tasks/mail/fast_table/rollback", {"version": 2})
        texts = traffic(30, seed=24)
        await school.ask_all(texts)
        again = await school.ask_all(texts)

        assert reply.status == 200
        assert (await school.show())["table"]["version"] == 2
        assert {one["source"] for one in again} == {"replay"}

    async def test_is_audited(self, school, taught, caplog):
        await taught()
        await promoted_again(school)

        await school.send("POST", "/v1/tasks/mail/fast_table/rollback", {"version": 1})

        assert any("roll back to version 1 by" in record.message for record in caplog.records)

    async def test_to_a_version_that_was_suspended_is_refused(self, two_versions):
        school = two_versions

        reply = await school.send("POST", "/v1/tasks/mail/fast_table/rollback", {"version": 1})

        assert reply.status == 422
        assert "1 was suspended, and only a new certificate helps: somebody said so" in reply.body.decode()
        assert (await school.show())["table"]["version"] == 2

    @pytest.mark.parametrize(
        ("body", "said"),
        [
            ({"version": 7}, "7 is not among the versions that are kept: 1"),
            ({"version": 1}, "1 is served already"),
            ({"version": "1"}, "must be the number of a version"),
            ({}, "Field required"),
            ({"version": 1, "by": "me"}, "is not known here"),
            ([], "must be an object"),
        ],
    )
    async def test_to_no_other_version_says_why_not(self, school, taught, body, said):
        await taught()

        reply = await school.send("POST", "/v1/tasks/mail/fast_table/rollback", body)

        assert reply.status == 422
        assert said in reply.body.decode()

    async def test_of_a_task_that_is_not_there_is_not_found(self, school):
        reply = await school.send("POST", "/v1/tasks/mail/fast_table/rollback", {"version": 1})

        assert reply.status == 404

    async def test_against_another_version_of_the_record_is_a_conflict(self, school, taught):
        await taught()
        await promoted_again(school)

        reply = await school.send(
            "POST", "/v1/tasks/mail/fast_table/rollback", {"version": 1}, (b"x-precedent-replaces", b"1")
        )

        assert reply.status == 409


async def test_kept_decisions_of_a_withdrawn_version_say_so(school, taught):
    await taught(on_revoke="keep")
    texts = traffic(30, seed=30)
    answers = await school.ask_all(texts)
    by_table = [text for text, one in zip(texts, answers, strict=True) if one["answered_by"] == "table"]
    await school.suspend("default", "mail", 1, "somebody said so")

    for _ in range(2):  # found by the request's key, and then by its bytes
        reply = await school.ask(by_table[0])
        assert reply.json["x_precedent"]["source"] == "replay"
        assert "mail@1, which was withdrawn" in dict(reply.headers)[b"x-precedent-warning"].decode()


class TestLabels:
    async def test_of_enough_rows_make_the_certificate_gold(self, school):
        await school.learn()
        answers = await school.ask_all(traffic(400))
        await school.watcher.flush()
        labels = [{"row": one["key"], "answer": one["choice"]} for one in answers]

        reply = await school.send("POST", "/v1/tasks/mail/labels", {"labels": labels})
        await school.refit()

        assert reply.json == {"labelled": 400, "no_such_row": []}
        assert (await school.show())["certificate"]["kind"] == "gold"

    async def test_of_too_few_rows_to_prove_anything_leave_it_to_agreement(self, school):
        await school.learn()
        answers = await school.ask_all(traffic(400))
        labels = [{"row": one["key"], "answer": one["choice"]} for one in answers[:40]]

        await school.send("POST", "/v1/tasks/mail/labels", {"labels": labels})
        await school.refit()

        assert (await school.show())["certificate"]["kind"] == "agreement"

    async def test_are_what_a_gold_table_learns_and_is_judged_by(self, school):
        school.engine.contrary = lambda text: True  # the engine is always wrong, and people say what is right
        await school.learn()
        texts = traffic(600)
        answers = await school.ask_all(texts)
        right = {text: TOPICS[number % 3] for number, text in enumerate(texts)}
        labels = [
            {"row": one["key"], "answer": right[text]} for text, one in zip(texts, answers, strict=True)
        ]
        await school.send("POST", "/v1/tasks/mail/labels", {"labels": labels})
        await school.refit()
        await school.ask_all(traffic(20, seed=1))
        await school.until_timed()

        fresh = traffic(60, seed=31)
        answers = await school.ask_all(fresh)

        by_table = [
            (text, one) for text, one in zip(fresh, answers, strict=True) if one["answered_by"] == "table"
        ]
        assert len(by_table) > 40
        assert all(one["choice"] == TOPICS[fresh.index(text) % 3] for text, one in by_table)

    async def test_of_rows_that_are_not_there_are_named_and_not_kept(self, school):
        await school.learn()
        (answer,) = await school.ask_all(["lost my card please"])
        labels = [{"row": key, "answer": "card"} for key in (answer["key"], "0" * 32)]

        reply = await school.send("POST", "/v1/tasks/mail/labels", {"labels": labels})

        assert reply.json == {"labelled": 1, "no_such_row": ["0" * 32]}
        assert (await school.show())["learning"]["labels"] == 1

    @pytest.mark.parametrize(
        ("body", "said"),
        [
            (
                {"labels": [{"row": "a" * 32, "answer": "card"}, {"row": "a" * 32, "answer": "refund"}]},
                "is labelled twice",
            ),
            ({}, "Field required"),
            ({"labels": []}, "must be an array with at least one"),
            ({"labels": [{"row": "x", "answer": "card"}]}, "must be the `x_precedent.key` of an answer"),
            ({"labels": [{"row": "a" * 32, "answer": "weather"}]}, "must be the name of an option"),
            ({"labels": [{"row": "a" * 32}]}, "Field required"),
            ({"labels": ["a" * 32]}, "must be an object"),
        ],
    )
    async def test_that_make_no_sense_are_refused_with_what_was_expected(self, school, body, said):
        await school.learn()

        reply = await school.send("POST", "/v1/tasks/mail/labels", body)

        assert reply.status == 422
        assert said in reply.body.decode()

    async def test_of_a_task_with_examples_are_refused(self, school):
        await school.register(n=240)

        reply = await school.send("POST", "/v1/tasks/mail/labels", {"labels": []})

        assert reply.status == 422
        assert "it learns from examples" in reply.body.decode()


class TestErasing:
    async def test_rows_takes_them_and_their_labels_from_what_is_learned(self, school):
        await school.learn()
        answers = await school.ask_all(traffic(30))
        await school.watcher.flush()
        keys = [one["key"] for one in answers]
        await school.send("POST", "/v1/tasks/mail/labels", {"labels": [{"row": keys[0], "answer": "card"}]})

        reply = await school.send("POST", "/v1/tasks/mail/rows/erase", {"rows": [*keys[:10], "0" * 32]})

        assert reply.json == {"erased": 10}
        assert len(await rows(school, "uniform")) == 20
        assert (await school.show())["learning"]["labels"] == 0

    async def test_reaches_rows_that_are_not_in_the_store_yet(self, school):
        await school.learn()
        (answer,) = await school.ask_all(["lost my card please"])

        reply = await school.send("POST", "/v1/tasks/mail/rows/erase", {"rows": [answer["key"]]})
        await school.watcher.flush()

        assert reply.json == {"erased": 1}
        assert await rows(school, "uniform") == []

    async def test_what_is_no_row_is_refused(self, school):
        await school.learn()

        reply = await school.send("POST", "/v1/tasks/mail/rows/erase", {"rows": ["everything"]})

        assert reply.status == 422

    async def test_a_task_takes_its_rows_with_it(self, school, taught):
        await taught()
        await school.send("DELETE", "/v1/tasks/mail")
        await school.watcher.flush()

        for name in SERIES:
            assert await school.store.count_rows(Series("default", "mail", name)) == 0
        await school.learn()
        shown = await school.show()
        assert (shown["looks"], shown["learning"]["rows_had"]) == (0, 0)


class TestRegisteringAgain:
    async def test_with_other_settings_keeps_what_was_learned(self, school, taught):
        await taught()

        await school.learn(explore=0.5)
        shown = await school.show()

        assert shown["status"]["state"] == "active"
        assert shown["fast_table"]["explore"] == 0.5
        assert (shown["looks"], shown["table"]["version"]) == (1, 1)

    async def test_about_another_question_begins_anew_without_the_rows(self, school, taught):
        await taught()
        body = {
            "id": "mail",
            "questions": {"topic": QUESTION | {"instructions": "Which desk?"}},
            "fast_table": {"learn": True},
        }

        refused = await school.send("POST", "/v1/tasks", body)
        assert refused.status == 422
        assert "?replace=1" in refused.body.decode()
        assert (await school.show())["status"]["state"] == "active"

        await school.send("POST", "/v1/tasks?replace=1", body)
        shown = await school.show()

        assert shown["status"]["state"] == "learning"
        assert shown["versions"] == []
        assert (shown["learning"]["rows_had"], shown["learning"]["other_rows"]) == (0, 0)


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"examples": []}, "are not for a task that learns from traffic"),
        ({"questions": {}}, "exactly one question is needed"),
        ({"questions": None}, "exactly one question is needed"),
        ({"certify": None}, "must be left out or an object"),
        ({"fast_table": {"learn": True, "kind": "auto"}}, "must be static or encoder"),
        ({"fast_table": {"learn": True, "explore": 1.0}}, "must be a number from 0 and below 1"),
        ({"fast_table": {"learn": True, "min_rows": 5}}, "must be a whole number from 100 to"),
        ({"fast_table": {"learn": True, "min_rows": 10**30}}, "must be a whole number from 100 to"),
        ({"fast_table": {"learn": True, "min_rows": 60_000}}, "50000 are kept here"),
        ({"fast_table": {"learn": "yes"}}, "must be true for a task that has questions"),
        ({"fast_table": True}, "must be true for a task that has questions"),
        ({"certify": {"alpha": 0.001}}, "takes 2995: ask for 5990"),
        ({"certify": {"alpha": 1e-300}}, "must be a number from 0.000001 and below 1"),
        ({"certify": {"min_examples": 10**30}}, "must be a whole number from 1 to 1000000000"),
        ({"id": ".."}, "must not be . or .."),
        ({"fast_table": {"learn": True, "mode": "off"}}, 'must be \\"on\\" or \\"shadow\\"'),
        ({"fast_table": {"learn": True, "on_revoke": 1}}, 'must be \\"drop\\" or \\"keep\\"'),
        ({"fast_table": {"learn": True, "spotcheck": 0.1}}, "is not known here"),
    ],
)
async def test_a_registration_to_learn_that_makes_no_sense_is_refused(school, changes, said):
    body = {"id": "mail", "questions": {"topic": QUESTION}, "fast_table": {"learn": True}} | changes

    reply = await school.send("POST", "/v1/tasks", body)

    assert reply.status == 422
    assert said in reply.body.decode()


async def test_of_two_refits_at_once_one_publishes(school):
    await school.learn()
    await school.ask_all(traffic(400))
    await school.watcher.flush()
    (record,) = await learners(school.store)

    first = await school.refitter().look(record, lambda share: None)
    second = await school.refitter().look(record, lambda share: None)
    await school.sync.refresh()
    shown = await school.show()

    assert first.published == 1
    assert (second.published, "changed meanwhile" in second.said) == (None, True)
    assert shown["looks"] == 1
    assert [one["version"] for one in shown["versions"]] == [1]


async def test_a_candidate_that_fails_changes_nothing_but_says_why(school):
    school.engine.contrary = lambda text: crc32(text.encode()) % 2 == 0  # half of the answers follow no words
    await school.learn()
    await school.ask_all(traffic(400))

    (look,) = await school.refit()
    shown = await school.show()

    assert look.published is None
    assert shown["status"]["state"] == "learning"
    assert "nothing came of the last look" in shown["status"]["reason"]
    assert (shown["looks"], shown["versions"]) == (1, [])
    assert shown["learning"]["last_look"]["why_not"] in look.said
    assert shown["learning"]["rows_had"] == 0


async def test_a_candidate_that_answers_less_than_the_version_that_serves_is_not_published(school, taught):
    await taught(explore=0.9, spot_check=0.0)
    await school.ask_all(traffic(330, seed=40))
    await school.watcher.flush()
    (record,) = await learners(school.store)

    look = await school.refitter(Timid(static_vectors())).look(record, lambda share: None)
    await school.sync.refresh()

    assert look.published is None
    assert "of the newest rows, and version 1 does" in look.said
    assert (await school.show())["table"]["version"] == 1


class Timid(StaticStudent):
    """Claims to be unsure of a third of what it has not seen."""

    def fit(self, seen, answers, options, progress):
        fitted = super().fit(seen, answers, options, progress)
        least = np.quantile([verdict.confidence for verdict in fitted.rehearsal], 1 / 3)
        shy = [one if one.confidence > least else replace(one, confidence=np.nan) for one in fitted.rehearsal]
        return Fitted(fitted.table, shy)


async def test_an_outage_of_the_store_loses_no_more_rows_than_the_bound_and_promotes_nothing(tmp_path):
    store = Breakable()
    school = School(tmp_path / "tables", store=store, engine=ToyTeacher(), max_pending=50)
    await school.learn()
    await school.ask_all(traffic(30))
    await school.watcher.flush()

    store.is_down = True
    for part in range(6):  # flushes go on failing
        answers = await school.ask_all(traffic(20, seed=50 + part))
        assert all(one["answered_by"] == "model" for one in answers)
        await school.watcher.flush()
    with pytest.raises(StoreUnavailable):
        await school.refit()
    store.is_down = False
    await school.watcher.flush()
    await school.watcher.flush()
    await school.sync.refresh()
    shown = await school.show()

    assert shown["learning"]["rows_had"] == 30 + 50
    assert shown["learning"]["rows_lost"] == 120 - 50
    assert shown["versions"] == []


async def test_a_row_that_waits_when_its_task_is_removed_does_not_come_back(tmp_path):
    store = Breakable()
    school = School(tmp_path / "tables", store=store, engine=ToyTeacher())
    await school.learn()
    store.takes_no_rows = True
    await school.ask_all(traffic(9))
    await school.watcher.flush()
    store.takes_no_rows = False

    await school.send("DELETE", "/v1/tasks/mail")
    await school.watcher.flush()

    assert await rows(school, "uniform") == []
    assert school.rows.size == 0


async def test_fewer_distinct_rows_than_min_examples_do_not_certify(school):
    body = {"id": "mail", "questions": {"topic": QUESTION}, "certify": {"min_examples": 100}}
    await school.send("POST", "/v1/tasks", body | {"fast_table": {"learn": True, "min_rows": 200}})
    texts = traffic(130)
    await school.ask_all([*texts, *(text.upper() for text in texts)])  # other requests, the same inputs

    (look,) = await school.refit()

    assert look.published is None
    assert "distinct rows certify, and min_examples asks for 100" in look.said


async def test_another_promise_begins_anew_and_has_no_versions_to_roll_back_to(school, taught):
    await taught()
    body = {"id": "mail", "questions": {"topic": QUESTION}, "certify": {"alpha": 0.01}}

    await school.send("POST", "/v1/tasks", body | {"fast_table": {"learn": True}})
    shown = await school.show()

    assert (shown["status"]["state"], shown["versions"], shown["looks"]) == ("learning", [], 1)


class TestBeforeItServes:
    async def test_a_version_is_not_timed_again_after_a_restart_and_serves_without_an_engine(
        self, school, taught, tmp_path
    ):
        await taught()
        again = School(tmp_path / "tables", store=school.store, engine=ToyTeacher())
        again.engine._fails = lambda item: EngineUnavailable("none is up")

        await again.sync.refresh()

        assert (await again.show())["status"]["state"] == "active"
        assert again.engine.runs == 0

    async def test_what_another_process_of_the_host_measured_will_do(self, school, tmp_path):
        await school.learn()
        other = router_beside(school, tmp_path)
        await school.ask_all(traffic(260))
        await school.refit()
        await other.sync.refresh()
        assert (await other.show())["status"]["state"] == "timing"

        await school.ask_all(traffic(20, seed=1))
        await school.until_timed()
        keeping_up = asyncio.create_task(other.sync.keep_up(0.01))
        async with asyncio.timeout(5):
            while (await other.show())["status"]["state"] != "active":
                await asyncio.sleep(0.01)
        keeping_up.cancel()

        assert other.engine.runs == 0

    async def test_each_host_times_it(self, school, taught, tmp_path):
        await taught()
        other = School(tmp_path / "another host", store=school.store, engine=ToyTeacher())
        await other.sync.refresh()

        assert (await other.show())["status"]["state"] == "timing"
        await other.ask_all(traffic(20, seed=60))
        await other.until_timed()
        assert (await other.show())["status"]["state"] == "active"

    async def test_a_version_that_saves_too_little_on_a_host_is_off_there(self, school, taught, tmp_path):
        await taught(min_saving=0.05)
        other = School(tmp_path / "another host", store=school.store, engine=ToyTeacher(delay_s=0.0))
        other.timings._stopwatch = Slow(other.engine, other._no_vectors, other._warm)
        await other.sync.refresh()

        await other.ask_all(traffic(20, seed=61))
        await other.until_timed()
        shown = await other.show()
        (answer,) = await other.ask_all(["lost my card please"])

        assert shown["status"]["state"] == "off"
        assert "less than the 5.0% that was asked for" in shown["status"]["reason"]
        assert (answer["answered_by"], answer["certified_reason"]) == ("model", "not_worth_it")

    async def test_the_version_before_it_serves_on(self, school, taught):
        await taught()
        await promoted_again(school, timed=False)
        shown = await school.show()

        assert (shown["table"]["version"], shown["status"]["state"]) == (1, "active")
        assert (shown["following"]["version"], shown["following"]["state"]) == (2, "timing")

    async def test_a_version_that_was_withdrawn_does_not_serve_meanwhile(self, school, taught):
        await taught()
        withdrawn = Revocation(1, 900.0, "errors", is_final=True)
        await promoted_again(school, timed=False, revoked=(withdrawn,))

        (answer,) = await school.ask_all(["lost my card please"])

        assert (await school.show())["status"]["state"] == "timing"
        assert (answer["answered_by"], answer["certified_reason"]) == ("model", "being_timed")

    async def test_it_waits_for_an_engine_that_does_not_answer(self, school):
        await school.learn()
        await school.ask_all(traffic(400))
        await school.refit()
        fine, school.timings._stopwatch = (
            school.timings._stopwatch,
            Broken(school.engine, school._no_vectors, school._warm),
        )
        await school.ask_all(traffic(20, seed=62))
        await school.until_timed()
        assert (await school.show())["status"]["state"] == "timing"

        school.timings._stopwatch = fine
        school.now += 60.0
        await school.ask_all(traffic(20, seed=63))
        await school.until_timed()
        assert (await school.show())["status"]["state"] == "active"
