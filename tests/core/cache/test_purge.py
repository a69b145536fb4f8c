"""Purges: at once here, within a poll everywhere, and against writers that were under way."""

import asyncio
from copy import deepcopy
from dataclasses import replace

import pytest

from core.cache.cache import DecisionCache
from core.cache.fences import EVERYTHING, MAX_SCOPES, Scope
from core.cache.guard import Guarding
from core.cache.stores.base import FenceTable
from core.cache.stores.memory import MemoryStore
from core.identity import Identity
from tests.core.cache.faulty import ACME, NOW, OTHER, READS, WRITES, FaultyStore, key, noul

ALL_OF_ACME = Scope(tenant="acme")


@pytest.fixture
async def here(store):
    cache = DecisionCache(store)
    await cache.maintain(NOW)
    return cache


@pytest.fixture
async def elsewhere(store, here):
    cache = DecisionCache(store)
    await cache.maintain(NOW)
    return cache


async def decide(cache, number, identity=ACME, now=NOW, **fields):
    return await cache.add(noul(number, epoch=cache.epoch, **fields), identity, now)


async def replays(cache, number, identity=ACME, now=NOW):
    return await cache.get(key(number), identity, now) is not None


async def test_a_purge_is_in_force_here_at_once_in_memory_and_in_the_store(here):
    await decide(here, 1)
    purged = await here.purge(ALL_OF_ACME, NOW)

    assert purged.scope == ALL_OF_ACME
    assert here.peek(key(1), NOW) is None
    assert not await replays(here, 1)
    assert here.stats().tally.fenced == 2


async def test_a_purge_is_in_force_in_other_processes_once_they_have_read_their_fences(here, elsewhere):
    await decide(here, 1)
    assert await replays(elsewhere, 1)
    await here.purge(ALL_OF_ACME, NOW)
    await elsewhere.refresh_fences(NOW + 0.5)

    assert elsewhere.peek(key(1), NOW + 0.5) is None


async def test_a_process_that_nobody_maintains_learns_of_a_purge_with_the_first_lookup_after_a_second(
    here, elsewhere
):
    await decide(here, 1)
    await here.purge(ALL_OF_ACME, NOW)

    assert not await replays(elsewhere, 1, now=NOW + 1)


async def test_a_purge_spares_what_is_outside_its_scope(here):
    await decide(here, 1)
    await decide(here, 2, OTHER)
    await here.purge(ALL_OF_ACME, NOW)

    assert not await replays(here, 1)
    assert await replays(here, 2, OTHER)


async def test_a_writer_that_was_under_way_does_not_bring_the_answer_back(here, elsewhere):
    begun = noul(1, epoch=here.epoch)
    begun_elsewhere = noul(2, epoch=elsewhere.epoch)
    await here.purge(ALL_OF_ACME, NOW)
    added = await here.add(begun, ACME, NOW)
    await elsewhere.add(begun_elsewhere, ACME, NOW)

    assert (added.decision.answers, added.stored) == (begun.answers, False)
    for cache in (here, elsewhere):
        await cache.refresh_fences(NOW)
        assert not await replays(cache, 1)
        assert not await replays(cache, 2)


async def test_a_decision_made_after_a_purge_is_kept_and_replaces_what_was_fenced(here, elsewhere):
    await decide(here, 1, probability=0.2)
    await here.purge(ALL_OF_ACME, NOW)
    added = await decide(here, 1, probability=0.9)

    assert (added.won, added.stored) == (True, True)
    await elsewhere.refresh_fences(NOW)
    assert await elsewhere.get(key(1), ACME, NOW) == added.decision


async def test_a_writer_that_has_not_heard_of_the_purge_yet_costs_a_repeat_and_no_stale_answer(
    here, elsewhere
):
    await here.purge(ALL_OF_ACME, NOW)
    added = await decide(elsewhere, 1)
    await elsewhere.refresh_fences(NOW)

    assert added.stored
    assert not await replays(elsewhere, 1)
    assert (await decide(elsewhere, 1)).stored
    assert await replays(elsewhere, 1)


async def test_revoking_a_table_version_revokes_its_decisions_and_no_others(here):
    await decide(here, 1, tasks=("triage",), table_versions=("triage@3",))
    await decide(here, 2, tasks=("triage",), table_versions=("triage@4",))
    await here.purge(Scope(table_version="triage@3"), NOW)

    assert not await replays(here, 1)
    assert await replays(here, 2)


async def test_purging_evidence_spares_other_revisions(here):
    old, new = (replace(ACME, evidence=revision) for revision in ("r1", "r2"))
    await decide(here, 1, old)
    await decide(here, 2, new)
    await here.purge(Scope(evidence="r1"), NOW)

    assert not await replays(here, 1, old)
    assert await replays(here, 2, new)


async def test_what_was_fenced_is_removed_from_the_store_when_it_is_met(here, store):
    await decide(here, 1)
    await here.purge(ALL_OF_ACME, NOW)
    await replays(here, 1)

    assert await store.get_many([key(1)], NOW) == {}


async def test_clocks_that_disagree_by_an_hour_change_nothing(here, elsewhere):
    late = NOW + 3_600
    await decide(elsewhere, 1, now=late)
    await here.purge(ALL_OF_ACME, NOW)
    await elsewhere.refresh_fences(late)
    assert not await replays(elsewhere, 1, now=late)

    await decide(elsewhere, 1, now=late)
    assert await replays(here, 1)


async def test_a_new_process_knows_the_purges_of_the_past(here, store):
    await decide(here, 1)
    await here.purge(ALL_OF_ACME, NOW)

    assert not await replays(DecisionCache(store), 1)


async def test_many_lookups_at_the_first_moment_of_a_process_wait_for_the_fences(here, store):
    for number in range(20):
        await decide(here, number)
    await here.purge(ALL_OF_ACME, NOW)
    fresh = DecisionCache(store)

    assert not any(await asyncio.gather(*(replays(fresh, number) for number in range(20))))


async def test_purges_of_two_processes_are_both_in_force_in_both(here, elsewhere):
    await decide(here, 1)
    await decide(here, 2, OTHER)
    await asyncio.gather(here.purge(ALL_OF_ACME, NOW), elsewhere.purge(Scope(tenant="other"), NOW))

    for cache in (here, elsewhere):
        await cache.refresh_fences(NOW)
        assert not await replays(cache, 1)
        assert not await replays(cache, 2, OTHER)


async def test_more_purges_than_scopes_may_be_kept_never_let_anything_through():
    store = MemoryStore()
    for number in range(MAX_SCOPES):
        await store.add_fence(Scope(tenant="acme", evidence=f"r{number}").encode(), 0, ())
    cache = DecisionCache(store)
    await cache.maintain(NOW)
    one = replace(ACME, evidence="one too many")
    await decide(cache, 1, one)
    purged = await cache.purge(Scope(tenant="acme", evidence="one too many"), NOW)

    assert purged.scope == ALL_OF_ACME
    assert not await replays(cache, 1, one)
    table = await store.read_fences(FenceTable())
    assert table is not None
    assert len(table.by_scope) == 1


QUICK = Guarding(deadline_s=0.01, pause_s=1.0, max_pause_s=1.0, patience_s=0.01)


async def test_a_purge_that_cannot_reach_the_store_is_in_force_here_and_is_told_later(faulty):
    here, elsewhere = DecisionCache(faulty, guarding=QUICK), DecisionCache(faulty.inner)
    await here.maintain(NOW)
    await decide(here, 1)
    await decide(here, 2, OTHER)
    assert await replays(elsewhere, 1)
    faulty.broken = {*READS, *WRITES}
    purged = await here.purge(ALL_OF_ACME, NOW)

    assert purged.epoch is None
    assert here.peek(key(1), NOW) is None
    assert here.peek(key(2), NOW) is not None

    faulty.broken = set()
    await here.maintain(NOW + 2)
    await elsewhere.refresh_fences(NOW + 2)
    assert not await replays(elsewhere, 1, now=NOW + 2)


async def test_nothing_in_its_scope_is_replayed_while_a_purge_waits_for_the_store(faulty):
    cache = DecisionCache(faulty, guarding=QUICK)
    await cache.maintain(NOW)
    faulty.broken = {*READS, *WRITES}
    await cache.purge(ALL_OF_ACME, NOW)
    await decide(cache, 1)

    assert cache.peek(key(1), NOW) is None


async def test_a_store_that_lost_its_fences_makes_every_older_decision_count_no_more():
    faulty = FaultyStore()
    here, elsewhere = DecisionCache(faulty), DecisionCache(faulty)
    for cache in (here, elsewhere):
        await cache.maintain(NOW)
    await decide(here, 1)
    await replays(elsewhere, 1)
    faulty.inner = MemoryStore()  # restarted empty
    for cache in (here, elsewhere):
        await cache.maintain(NOW + 1)

    assert here.peek(key(1), NOW + 1) is None
    assert elsewhere.peek(key(1), NOW + 1) is None
    fresh = await decide(here, 1, probability=0.2, now=NOW + 1)
    await elsewhere.refresh_fences(NOW + 1)
    assert await elsewhere.get(key(1), ACME, NOW + 1) == fresh.decision


async def test_a_store_that_went_back_to_an_earlier_state_makes_every_older_decision_count_no_more():
    faulty = FaultyStore()
    here = DecisionCache(faulty)
    await here.maintain(NOW)
    await here.purge(Scope(tenant="x"), NOW)
    earlier = deepcopy(faulty.inner)  # as a replica that lags behind, or a snapshot
    await here.purge(Scope(tenant="y"), NOW)
    await decide(here, 1)
    faulty.inner = earlier
    await here.maintain(NOW + 1)

    assert here.peek(key(1), NOW + 1) is None
    assert here.epoch == 4


async def test_a_store_that_was_never_used_needs_no_purge(here, store):
    assert here.epoch == 1
    assert (await decide(here, 1)).stored
    table = await store.read_fences(FenceTable())
    assert table is not None
    assert EVERYTHING.encode() not in table.by_scope


async def test_a_decision_begun_before_the_first_contact_with_a_new_store_counts(store):
    cache = DecisionCache(store)
    begun = noul(1, epoch=cache.epoch)
    await cache.get(key(1), ACME, NOW)
    await cache.add(begun, ACME, NOW)

    assert await replays(cache, 1)


async def test_a_tenants_purge_cannot_reach_another_tenants_decisions(here):
    stranger = Identity("stranger", "default", evidence="r1")
    mine = replace(ACME, evidence="r1")
    await decide(here, 1, stranger)
    await decide(here, 2, mine)
    await here.purge(Scope(tenant="acme", evidence="r1"), NOW)

    assert await replays(here, 1, stranger)
    assert not await replays(here, 2, mine)
