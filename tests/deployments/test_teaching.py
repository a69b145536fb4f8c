"""Fits: what others see of them, and how they end. Over HTTP in test_task_routes."""

import asyncio
from dataclasses import replace

import pytest

from core.errors import EngineUnavailable, FitFailed, TaskBusy
from core.tasks.notes import SILENT_AFTER_S
from core.tasks.record import FastTableSettings
from core.tasks.registration import read_registration
from deployments import fit_notes
from tests.deployments.school import School, registration

WANTED = read_registration(registration())


@pytest.fixture
def school(tmp_path):
    school = School(tmp_path / "tables")
    school.gate = asyncio.Event()
    return school


async def test_another_router_sees_how_far_a_fit_is(school, tmp_path, monkeypatch):
    monkeypatch.setattr(fit_notes, "NOTE_EVERY_S", 0.001)
    other = School(tmp_path / "other", store=school.store)

    done = await school.teaching.register("default", WANTED, None)
    async with asyncio.timeout(10):
        while (seen := other.teaching.note("default", "mail")) is None or seen.progress == 0.0:
            await asyncio.sleep(0.005)
            await other.sync.refresh()
    school.gate.set()
    await done
    await other.sync.refresh()

    assert (seen.state, seen.progress) == ("learning", 0.5)
    assert other.teaching.note("default", "mail") is None
    assert other.registry.get("default", "mail") is not None


async def test_a_fit_that_goes_on_is_heard_of_though_it_makes_no_progress(school, monkeypatch):
    monkeypatch.setattr(fit_notes, "NOTE_EVERY_S", 0.001)
    await school.teaching.register("default", WANTED, None)
    async with asyncio.timeout(10):
        while school.teaching.note("default", "mail").progress == 0.0:
            await asyncio.sleep(0.001)

    school.now += SILENT_AFTER_S
    async with asyncio.timeout(10):
        while not school.teaching.note("default", "mail").is_under_way(school.now):
            await asyncio.sleep(0.001)
    await school.teaching.drain()


async def test_a_fit_whose_router_went_down_can_be_begun_anew_once_it_was_silent_for_long(school, tmp_path):
    await school.teaching.register("default", WANTED, None)
    other = School(tmp_path / "other", store=school.store)
    await other.sync.refresh()
    await school.teaching.drain()  # a Router that stops finishes nothing

    with pytest.raises(TaskBusy):
        await other.teaching.register("default", WANTED, None)
    other.now += SILENT_AFTER_S
    await (await other.teaching.register("default", WANTED, None))

    assert other.registry.get("default", "mail") is not None


async def test_a_router_that_stops_leaves_no_fit_running(school):
    done = await school.teaching.register("default", WANTED, None)

    await school.teaching.drain()

    assert done.cancelled()
    assert not school.teaching._running


async def test_a_fit_whose_process_dies_says_so_and_leaves_the_old_task(school):
    school.gate.set()
    first = await (await school.teaching.register("default", WANTED, None))
    school.ends = RuntimeError("the worker was killed")

    with pytest.raises(FitFailed, match="register it again"):
        await (await school.teaching.register("default", WANTED, None))

    assert school.registry.get("default", "mail").record == first
    assert school.teaching.note("default", "mail").state == "failed"


async def test_an_engine_that_does_not_answer_ends_the_fit_and_leaves_the_old_task(school):
    school.gate.set()
    school.engine._fails = lambda item: EngineUnavailable("no replica is running")

    with pytest.raises(EngineUnavailable):
        await (await school.teaching.register("default", WANTED, None))

    assert school.registry.get("default", "mail") is None


async def test_a_fit_that_nobody_waits_for_complains_to_nobody(school):
    school.gate.set()
    school.ends = RuntimeError("the worker was killed")

    done = await school.teaching.register("default", WANTED, None)
    async with asyncio.timeout(10):
        while not done.done():
            await asyncio.sleep(0.001)
    del done  # an exception that was never retrieved would be an error here


async def test_what_is_asked_for_reaches_the_fit(school):
    school.gate.set()
    wanted = replace(WANTED, fast_table=FastTableSettings("auto", "multilingual", 0.0))

    await (await school.teaching.register("default", wanted, None))

    lesson, how = school.taught[0]
    assert (how.kind, how.static_model) == ("auto", "multilingual")
    assert lesson.examples == WANTED.examples
    assert lesson.looks == 0


async def test_looks_are_counted_through_refits(school):
    school.gate.set()
    for expected in (1, 2, 3):
        made = await (await school.teaching.register("default", WANTED, None))
        assert made.looks == expected
        assert made.table.version == expected
