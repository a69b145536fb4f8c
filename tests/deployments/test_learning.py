"""A table from its first row to its withdrawal, over HTTP, with one Router or two over one store."""

from dataclasses import replace

import pytest

from core.tasks.record_json import encode, names_objects
from core.tasks.rows import decode
from core.tasks.stores.rows import Series
from tests.deployments.school import School
from tests.deployments.teacher import ToyTeacher
from tests.toy_language import texts_about


def traffic(n, seed=0):
    """So many distinct texts, of all topics in turn."""
    per_topic = [texts_about(topic, -(-n // 3), seed) for topic in range(3)]
    return [text for texts in zip(*per_topic, strict=True) for text in texts][:n]


@pytest.fixture
def school(tmp_path):
    return School(tmp_path / "tables", engine=ToyTeacher(), max_examples=100_000)


async def taught(school, n=400, **fast_table):
    """A task whose table serves."""
    await school.learn(**fast_table)
    await school.ask_all(traffic(n))
    (look,) = await school.refit()
    assert look.published, look.said
    await school.ask_all(traffic(20, seed=1))
    await school.until_timed()
    return look


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


async def test_what_a_table_passes_on_may_not_certify_and_what_is_drawn_by_lot_may(school):
    await taught(school, explore=0.3, spot_check=0.5)
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


async def test_an_explored_request_is_drawn_by_its_key_on_every_router(school, tmp_path):
    await taught(school, explore=0.3)
    other = School(tmp_path / "tables", store=school.store, engine=ToyTeacher())
    await other.sync.refresh()

    one, two = [await each.ask_all(traffic(60, seed=4)) for each in (school, other)]

    assert [each["answered_by"] for each in one] == [each["answered_by"] for each in two]


async def test_an_explored_request_is_answered_by_the_decision_there_is(school):
    await taught(school, explore=0.5)
    texts = traffic(40, seed=5)
    first = await school.ask_all(texts)
    school.engine.contrary = lambda text: True

    again = await school.ask_all(texts)

    assert {one["source"] for one in again} == {"replay"}
    assert [one["choice"] for one in again] == [one["choice"] for one in first]


async def test_an_engine_that_comes_to_differ_has_the_version_withdrawn_on_every_router(school, tmp_path):
    await taught(school, explore=0.0, spot_check=0.5)
    other = School(tmp_path / "tables", store=school.store, engine=ToyTeacher())
    other.serving.store = school.serving.store
    other.app = other._app()
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


async def test_spot_checks_go_on_while_a_version_is_suspended_and_change_nothing(school):
    await taught(school)
    await school.tending.suspend("default", "mail", 1, "somebody said so")
    await school.ask_all(traffic(60, seed=7))
    await school.watcher.flush()
    await school.sync.refresh()
    shown = await school.show()

    assert shown["versions"][0]["watch"]["error"]["checks"] > 40
    assert shown["status"]["state"] == "suspended"


async def test_time_does_not_bring_a_suspended_version_back_and_a_new_certificate_does(school):
    await taught(school)
    school.now += 10.0
    await school.tending.suspend("default", "mail", 1, "somebody said so")
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


async def test_after_a_suspension_no_row_from_before_it_certifies(school):
    await taught(school)
    await school.ask_all(traffic(300, seed=10))
    school.now += 10.0
    await school.tending.suspend("default", "mail", 1, "somebody said so")

    (look,) = await school.refit()

    assert look.published is None
    assert "0 rows that may certify" in look.said


async def test_an_answer_is_judged_by_what_was_served_by_the_version_that_served_it(school):
    """Spot checks of version 1 that come in after version 2 was promoted say nothing about version 2."""
    await taught(school, explore=0.0, spot_check=0.9)
    school.engine.contrary = lambda text: True  # so every check finds the answer of version 1 wrong
    answers = await school.ask_all(traffic(12, seed=11))
    given = sum(one["answered_by"] == "table" for one in answers)
    assert given >= 6
    entry = await school.store.get("default", "mail")
    record = school.registry.get("default", "mail").record
    second = replace(record.with_table(replace(record.table, version=2, is_timed=True)), looks=2)
    await school.store.put("default", "mail", encode(second), entry.version, 1.0, names_objects(second))
    await school.sync.refresh()
    assert (await school.show())["table"]["version"] == 2

    await school.watcher.drain()
    await school.sync.refresh()

    watched = {one["version"]: one["watch"] for one in (await school.show())["versions"]}
    assert watched[1]["error"]["errors"] == watched[1]["error"]["checks"] > 0
    assert watched[2] is None


async def test_in_shadow_mode_the_table_decides_the_engine_answers_and_agreement_is_counted(school):
    await taught(school, mode="shadow")

    answers = await school.ask_all(traffic(100, seed=12))
    await school.watcher.flush()
    await school.sync.refresh()
    shown = await school.show()

    assert {(one["answered_by"], one["certified_reason"]) for one in answers} == {("model", "shadow")}
    assert shown["versions"][0]["watch"]["error"]["checks"] > 80
    assert shown["versions"][0]["watch"]["error"]["errors"] == 0
    assert len([row for row in await rows(school, "uniform") if row.drawn == "traffic"]) >= 500


async def test_another_engine_is_not_what_the_certificate_is_about(school, tmp_path):
    await taught(school)
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
