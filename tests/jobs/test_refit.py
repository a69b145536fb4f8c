"""The job around a look. Looks themselves: tests/deployments/test_learning and tests/validity/test_refits."""

import asyncio
from dataclasses import dataclass, field, replace

import pytest

from config.paths import CHECKOUT
from core.errors import StoreUnavailable
from core.tasks.record import FastTableSettings, Learned, State
from core.tasks.record_json import encode
from core.tasks.refitter import Look
from core.tasks.stores import open_task_store
from core.tasks.stores.memory import MemoryTaskStore
from jobs.refit import Job, main
from tests.core.tasks.tables import record


@dataclass
class Script:
    """A refitter whose looks are scripted."""

    fresh_rows: int = 0
    missing: int = 0
    looked: list[str] = field(default_factory=list)
    fails: Exception | None = None

    async def fresh(self, record):
        if self.fails is not None:
            raise self.fails
        return self.fresh_rows

    async def look(self, record, progress):
        self.looked.append(record.id)
        return Look(record.id, None, "nothing was published", self.missing)


def learner(task_id="support", tenant="acme"):
    wanted = FastTableSettings(learn=True, min_rows=100)
    made = record(task_id, table=None, state=State.LEARNING, fast_table=wanted, learned=Learned())
    return replace(made, tenant=tenant)


async def a_store(*records):
    store = MemoryTaskStore()
    for one in records:
        await store.put(one.tenant, one.id, encode(one), 0, 1.0)
    return store


def job_of(store, refitter):
    said: list[str] = []
    return Job(store, refitter, said.append), said


async def test_tasks_with_enough_new_rows_are_looked_at_whosever_they_are():
    labelled = record("labelled")
    store = await a_store(learner("one"), learner("two", "other"), labelled)
    refitter = Script(fresh_rows=100)
    job, _ = job_of(store, refitter)

    assert await job.once() == 2
    assert refitter.looked == ["one", "two"]
    assert await job.once("two", "acme") == 0
    assert await job.once("two") == 1


async def test_a_task_with_too_few_rows_is_left_alone_and_that_is_said_once():
    refitter = Script(fresh_rows=99)
    job, said = job_of(await a_store(learner()), refitter)

    await job.once()
    await job.once()

    assert refitter.looked == []
    assert said == ["support: 99 new rows, and 100 are needed"]


async def test_rows_that_may_not_certify_are_not_read_again_until_as_many_others_came():
    refitter = Script(fresh_rows=150, missing=30)
    job, _ = job_of(await a_store(learner()), refitter)

    for rows in (150, 150, 179, 180):
        refitter.fresh_rows = rows
        await job.once()

    assert len(refitter.looked) == 2


async def test_watching_goes_on_while_the_store_is_away_and_says_so_once():
    refitter = Script(fails=StoreUnavailable("count_rows", "it is down"))
    job, said = job_of(await a_store(learner()), refitter)
    watching = asyncio.create_task(job.watch(0.001))
    await asyncio.sleep(0.05)
    refitter.fails, refitter.fresh_rows = None, 100
    async with asyncio.timeout(5):
        while not refitter.looked:
            await asyncio.sleep(0.001)
    watching.cancel()

    assert sum("waiting for the store" in one for one in said) == 1


class TestTheCommand:
    @pytest.mark.parametrize(
        "arguments",
        [
            [],
            ["--all", "--watch"],
            ["--task", "a", "--all"],
            ["--watch", "often"],
            ["--watch", "-5"],
            ["--watch", "nan"],
        ],
    )
    def test_wants_to_know_which_tasks(self, arguments, capsys):
        with pytest.raises(SystemExit) as ended:
            main(arguments)

        assert ended.value.code == 2

    def test_names_the_store_in_which_no_task_learns(self, tmp_path, capsys):
        url = f"sqlite:///{tmp_path}/decisions.db"

        async def keep():
            store = open_task_store(url)
            await store.put("acme", "labelled", encode(record("labelled")), 0, 1.0)
            await store.close()

        asyncio.run(keep())

        assert main(["--all", "--store", url]) == 0
        assert main(["--task", "support", "--store", url]) == 2
        said = capsys.readouterr().err
        assert f"no task 'support' learns from traffic in {url}" in said
        assert "--home" in said

    def test_makes_no_store_where_there_is_none(self, tmp_path, capsys):
        assert main(["--all", "--store", f"sqlite:///{tmp_path}/none/decisions.db"]) == 2
        assert "no task was ever kept there" in capsys.readouterr().err
        assert [*tmp_path.iterdir()] == []

    def test_says_what_is_wrong_with_the_settings(self, tmp_path, capsys):
        assert main(["--all", "--settings", str(tmp_path / "none.yaml")]) == 2
        assert "cannot be read" in capsys.readouterr().err

    def test_says_that_the_store_does_not_answer(self, capsys):
        assert main(["--all", "--store", "redis://127.0.0.1:1/0"]) == 1
        assert "the store failed at read" in capsys.readouterr().err

    def test_sees_relative_paths_from_the_home_it_is_told(self, tmp_path, capsys):
        (tmp_path / ".precedent").mkdir()
        (tmp_path / ".precedent" / "models").symlink_to(CHECKOUT / ".precedent" / "models")
        (tmp_path / "serve_config.yaml").write_text((CHECKOUT / "serve_config.yaml").read_text())

        async def keep():
            store = open_task_store(f"sqlite:///{tmp_path}/.precedent/decisions.db")
            await store.put("acme", "support", encode(learner()), 0, 1.0)
            await store.close()

        asyncio.run(keep())

        assert main(["--all", "--home", str(tmp_path)]) == 0
        assert "support: 0 new rows, and 100 are needed" in capsys.readouterr().out
