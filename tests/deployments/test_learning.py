"""A table from its first row to its withdrawal, over HTTP, with one Router or two over one store."""

import pytest

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
    return [decode(one.value) for one in found]


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
