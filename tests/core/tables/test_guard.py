import asyncio

import pytest

from core.tables.guard import CONCURRENCY, Timing, Tried, choose, measure, worth

ENGINE = Timing(0.010, 0.010, 0.040, 0.040)
FAST = Timing(0.0001, 0.0001, 0.0001, 0.0001)


def tried(kind="static", covered=0.8, timing=FAST, why_not=None):
    return Tried(kind, covered, why_not is None, why_not, timing)


async def test_answers_are_timed_alone_and_eight_at_once():
    running, most, texts = 0, [], []

    async def ask(text):
        nonlocal running
        running += 1
        most.append(running)
        texts.append(text)
        await asyncio.sleep(0)
        running -= 1

    await measure(ask, ["a", "b", "c"], 24, lambda: 0.0)

    assert max(most[:25]) == 1
    assert max(most) == CONCURRENCY
    assert len(texts) == 1 + 24 + 24
    assert {text: texts[1:25].count(text) for text in "abc"} == {"a": 8, "b": 8, "c": 8}


async def test_the_first_answer_which_pays_for_what_is_loaded_once_is_not_counted():
    now, answered = 0.0, 0

    async def ask(_text):
        nonlocal now, answered
        now += 1.0 if answered else 100.0
        answered += 1

    timing = await measure(ask, ["a"], 10, lambda: now)

    assert timing == Timing(1.0, 1.0, 1.0, 1.0)


async def test_an_answer_that_fails_is_not_hidden():
    async def ask(_text):
        raise RuntimeError("no answer")

    with pytest.raises(RuntimeError, match="no answer"):
        await measure(ask, ["a"], 3, lambda: 0.0)


def test_a_table_costs_its_time_on_every_request_and_saves_the_engines_on_those_it_answers():
    # Alone: 0.001 + 0.2 * 0.010 against 0.010. Beside seven: 0.004 + 0.2 * 0.040 against 0.040.
    table = Timing(0.001, 0.0, 0.004, 0.0)

    value = worth(table, ENGINE, 0.8)

    assert value.saving == pytest.approx(0.7)
    assert value.saving_at_8 == pytest.approx(0.7)


def test_a_table_that_is_slow_under_load_is_judged_by_that():
    slow_together = Timing(0.0001, 0.0001, 0.036, 0.036)

    kept, report = choose([tried(timing=slow_together)], ENGINE, 0.1)

    assert kept is None
    assert not report["kept"]
    assert report["kinds"]["static"]["saving_at_8"] == pytest.approx(-0.1)


@pytest.mark.parametrize(("covered", "kept"), [(0.12, "static"), (0.09, None)])
def test_a_table_is_kept_that_saves_as_much_as_was_asked_for(covered, kept):
    found, report = choose([tried(covered=covered)], ENGINE, 0.1)

    assert found == kept
    assert report["kept"] is (kept is not None)
    assert "10.0%" in report["reason"]
    assert report["guard"]["min_saving"] == 0.1
    assert report["guard"]["engine"]["mean_s"] == 0.010


def test_of_several_tables_the_one_that_saves_more_is_kept():
    encoder = tried("encoder", 0.9, Timing(0.005, 0.005, 0.020, 0.020))

    kept, report = choose([tried("static", 0.7), encoder], ENGINE, 0.1)

    assert kept == "static"
    assert report["kinds"].keys() == {"static", "encoder"}


def test_what_is_not_certified_is_not_kept_and_says_why():
    kept, report = choose([tried(covered=0.0, timing=None, why_not="100 more are needed")], None, 0.1)

    assert kept is None
    assert report == {
        "kept": False,
        "reason": "no table could be certified, so none was timed",
        "guard": None,
        "kinds": {"static": {"certified_share": 0.0, "certified": False, "reason": "100 more are needed"}},
    }


def test_an_engine_that_takes_no_time_is_not_worth_sparing():
    free = Timing(0.0, 0.0, 0.0, 0.0)

    assert worth(FAST, free, 0.9).least == 0.0
