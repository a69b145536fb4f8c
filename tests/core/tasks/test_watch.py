from dataclasses import replace

import pytest

from core.tables.watching import Tail
from core.tasks.record import Revocation
from core.tasks.watch import Seen, Sightings, Watch, decode, public
from tests.core.tasks.tables import certificate, record, table_ref

TAIL = Tail(0.3, 0.25)
AGREES = replace(certificate(), kind="agreement")


def served(versions=(1, 2), **fields):
    made = record(table=None)
    for version in versions:
        made = made.with_table(replace(table_ref(version=version), tail=TAIL, certificate=AGREES, **fields))
    return made


def test_what_routers_see_adds_up_whoever_tells_first():
    one = Sightings([True, False], [True], {0: 2}, 5, 3)
    other = Sightings([False] * 3, [False, False], {0: 1, 1: 4}, 7, 6)

    watch = Watch().after({2: one}, served(), 4).after({2: other}, served(), 1)

    seen = watch.versions[2]
    assert (seen.bets.checks, seen.bets.errors) == (5, 1)
    assert (seen.drift.texts, seen.drift.low) == (3, 1)
    assert dict(seen.answers) == {0: 3, 1: 4}
    assert (seen.asked, seen.answered) == (12, 9)
    assert watch.rows_lost == 5


def test_sightings_that_wait_go_before_later_ones():
    first, second = Sightings([True], [False], {0: 1}, 1, 1), Sightings([False], [True], {0: 2, 1: 1}, 3, 2)

    assert first.and_then(second) == Sightings([True, False], [False, True], {0: 3, 1: 1}, 4, 3)


def test_each_version_is_seen_by_itself():
    watch = Watch().after({1: Sightings([True] * 3), 2: Sightings([False] * 2)}, served())

    assert watch.versions[1].bets.errors == 3
    assert (watch.versions[2].bets.checks, watch.versions[2].bets.errors) == (2, 0)


def test_versions_that_a_record_has_dropped_go():
    watch = Watch().after({1: Sightings([True])}, served((1, 2)))

    assert watch.after({9: Sightings([True])}, served((2, 3))).versions == {}


def test_versions_that_only_another_router_knows_are_kept():
    watch = Watch().after({3: Sightings([True])}, served((2, 3)))

    assert watch.after({2: Sightings([False])}, served((1, 2))).versions.keys() == {2, 3}


def test_another_table_under_the_number_of_an_earlier_one_is_seen_by_itself():
    watch = Watch().after({1: Sightings([True] * 20)}, served((1,)))

    again = watch.after({1: Sightings([False])}, served((1,), object="another"))

    assert (again.versions[1].bets.checks, again.versions[1].bets.errors) == (1, 0)


def test_what_was_seen_survives_the_store():
    watch = Watch().after({2: Sightings([True, False, True], [True, False], {1: 7}, 9, 8)}, served(), 3)

    assert decode(watch.encode()) == watch


@pytest.mark.parametrize("value", [None, b"", b"{}", b"[]", b'{"versions": {"1": {}}, "rows_lost": 0}'])
def test_what_is_no_watch_is_read_as_nothing_seen(value):
    assert decode(value) == Watch()


class TestAnAlarm:
    def test_is_raised_by_errors_of_an_agreement_certificate(self):
        watch = Watch().after({2: Sightings([True] * 20)}, served())

        assert watch.alarms(served()).keys() == {2}
        assert "gave 20 of the 20 certified answers" in watch.alarms(served())[2]

    def test_is_not_raised_by_answers_that_the_engine_gives_otherwise_of_a_gold_certificate(self):
        gold = record(table=None).with_table(table_ref(version=2))

        watch = Watch().after({2: Sightings([True] * 500)}, gold)

        assert watch.alarms(gold) == {}

    def test_is_raised_by_texts_of_another_kind(self):
        watch = Watch().after({2: Sightings(low=[True] * 60)}, served())

        assert "unsure of 60 of 60 texts" in watch.alarms(served())[2]

    def test_is_raised_by_nothing_that_is_as_it_should_be(self):
        watch = Watch().after(
            {2: Sightings([number % 40 == 0 for number in range(2_000)], [n % 5 == 0 for n in range(2_000)])},
            served(),
        )

        assert watch.alarms(served()) == {}

    def test_is_not_raised_again_about_a_version_that_was_withdrawn(self):
        watch = Watch().after({1: Sightings([True] * 20), 2: Sightings([True] * 20)}, served())
        withdrawn = served().with_revoked(Revocation(2, 1.0, "errors", is_final=True))

        assert watch.alarms(withdrawn).keys() == {1}

    def test_needs_a_tail_to_be_about_texts(self):
        without = record(table=None).with_table(table_ref(version=2))

        assert Watch().after({2: Sightings(low=[True] * 500)}, without).alarms(without) == {}


def test_callers_see_the_interval_and_the_options_by_name():
    seen = Seen().after(
        Sightings([True] + [False] * 99, [True] * 10, {0: 3, 1: 5}, 200, 100), served().versions[0]
    )

    shown = public(seen, served().versions[0], ("billing", "sales"))

    assert shown["coverage"] == 0.5
    assert shown["answers"] == {"billing": 3, "sales": 5}
    low, high = shown["error"]["interval"]
    assert 0.0 < low < 0.01 < high < 0.1
    assert shown["drift"]["normal_share"] == 0.25
