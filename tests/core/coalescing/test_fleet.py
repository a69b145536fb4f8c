"""Three Routers, a shard, a store and an engine of 0.3 s: what callers see, whatever happens to the parts."""

import asyncio
import random

import pytest

from core.coalescing.bounds import Bounds
from core.coalescing.client import Alone
from core.coalescing.shard import ShardLoad
from tests.core.coalescing.fleet import CALL_S, Engine, EngineBroke, Fleet, Router, outcomes

K = b"k" * 16


def key(number: int) -> bytes:
    return number.to_bytes(16, "big")


def ask(fleet: Fleet, wanted: bytes, router: int) -> asyncio.Task[bytes]:
    return asyncio.create_task(fleet.routers[router % fleet.size].decide(wanted))


async def nothing_is_held(fleet: Fleet) -> None:
    await asyncio.sleep(10 * CALL_S)
    assert (fleet.shard.load.keys, fleet.shard.load.seats) == (0, 0)
    for client in fleet.clients:
        assert (client.stats().waiting, client.stats().running) == (0, 0)


async def test_a_thousand_equal_requests_over_three_routers_run_the_engine_once(fleet):
    answers = await outcomes(ask(fleet, K, number) for number in range(1_000))

    assert fleet.engine.runs == {K: 1}
    assert set(answers) == {b"%b answered by run 1" % K}
    stats = [client.stats() for client in fleet.clients]
    assert sum(each.claims for each in stats) == 3
    assert sum(each.runs for each in stats) == 1
    assert sum(each.coalesced for each in stats) == 2
    await nothing_is_held(fleet)


async def test_the_same_again_at_the_moment_the_decision_expires_is_one_more_run(fleet):
    await outcomes(ask(fleet, K, number) for number in range(50))
    fleet.store.clear()

    answers = await outcomes(ask(fleet, K, number) for number in range(50))

    assert fleet.engine.runs == {K: 2}
    assert set(answers) == {b"%b answered by run 2" % K}


async def test_two_hundred_keys_by_twenty_copies_are_two_hundred_runs(fleet):
    answers = await outcomes(ask(fleet, key(n % 200), n // 7) for n in range(4_000))

    assert len(fleet.engine.runs) == 200
    assert set(fleet.engine.runs.values()) == {1}
    assert len(set(answers)) == 200
    await nothing_is_held(fleet)


async def test_a_claim_won_just_after_another_routers_answer_was_stored_finds_it_there(fleet):
    fleet.wires[1].delay_s = 3 * CALL_S
    early = ask(fleet, K, 0)
    await asyncio.sleep(fleet.engine.takes_s + CALL_S)  # not stored yet: the claim took its time as well
    late = ask(fleet, K, 1)

    assert await early == await late

    assert fleet.clients[1].stats().runs == 1
    assert fleet.engine.runs == {K: 1}


async def test_whoever_asked_first_may_leave_and_the_others_are_answered_by_its_run(fleet):
    first = ask(fleet, K, 0)
    await asyncio.sleep(0.1)
    others = [ask(fleet, K, number) for number in range(6)]
    await asyncio.sleep(0.1)

    first.cancel()

    assert set(await outcomes(others)) == {b"%b answered by run 1" % K}
    assert fleet.engine.runs == {K: 1}


async def test_whoever_waits_may_leave_and_a_late_caller_joins_the_same_run(fleet):
    callers = [ask(fleet, K, number) for number in range(6)]
    await asyncio.sleep(0.1)
    for caller in callers[1::2]:
        caller.cancel()
    await asyncio.sleep(0.1)

    answers = await outcomes([*callers[0::2], ask(fleet, K, 1), ask(fleet, K, 2)])

    assert set(answers) == {b"%b answered by run 1" % K}
    assert fleet.engine.runs == {K: 1}


async def test_a_run_that_fails_is_tried_again_by_one_other_router_and_only_its_own_callers_see_the_error(
    fleet,
):
    fleet.engine.failures[K] = 1
    unlucky = [ask(fleet, K, 0) for _ in range(3)]
    await asyncio.sleep(0.1)
    others = [ask(fleet, K, number) for number in (1, 1, 2, 2)]

    assert {type(outcome) for outcome in await outcomes(unlucky)} == {EngineBroke}
    assert set(await outcomes(others)) == {b"%b answered by run 2" % K}
    assert fleet.engine.runs == {K: 2}
    assert sum(client.stats().takeovers for client in fleet.clients) == 1
    await nothing_is_held(fleet)


async def test_a_key_that_always_fails_is_tried_once_by_each_router_in_turn_and_hangs_nobody(fleet):
    fleet.engine.failures[K] = 99

    answers = await outcomes(ask(fleet, K, number) for number in range(30))

    assert {type(answer) for answer in answers} == {EngineBroke}
    assert fleet.engine.runs == {K: 3}
    assert fleet.store == {}
    await nothing_is_held(fleet)


async def test_when_the_owners_router_is_killed_exactly_one_waiter_takes_over_once_its_lease_lapsed(fleet):
    lost = ask(fleet, K, 0)
    await asyncio.sleep(0.1)
    waiters = [ask(fleet, K, 1 + number % 2) for number in range(20)]
    await asyncio.sleep(0.05)
    began = asyncio.get_running_loop().time()
    fleet.kill_router(0)

    answers = await outcomes(waiters)

    assert set(answers) == {b"%b answered by run 2" % K}
    assert fleet.engine.runs == {K: 2}
    took_s = asyncio.get_running_loop().time() - began
    assert took_s < fleet.bounds.lease_s + fleet.engine.takes_s + 10 * CALL_S
    lost.cancel()


async def test_a_killed_router_that_waited_holds_nothing_after_a_lease(fleet):
    fleet.engine.takes_s = 5.0
    owner = ask(fleet, K, 0)
    await asyncio.sleep(0.1)
    lost = ask(fleet, K, 1)
    await asyncio.sleep(0.1)
    fleet.kill_router(1)

    await asyncio.sleep(fleet.bounds.lease_s)

    assert fleet.shard.load == ShardLoad(sessions=1, keys=1, seats=1)
    await owner
    lost.cancel()


async def test_an_owner_slower_than_its_run_may_last_gets_the_answer_that_was_stored_first():
    fleet = Fleet(Bounds(max_run_s=1.0), Engine(takes_s=2.0))
    slow = ask(fleet, K, 0)
    await asyncio.sleep(0.5)
    fleet.engine.takes_s = 0.1
    quick = ask(fleet, K, 1)

    answers = await outcomes([slow, quick])

    assert set(answers) == {b"%b answered by run 2" % K}
    await asyncio.sleep(10 * CALL_S)
    assert fleet.clients[0].stats().lapses == 1
    await fleet.close()


async def test_when_the_coalescer_dies_under_load_each_router_computes_once_at_most_and_all_bodies_agree(
    fleet,
):
    callers = [ask(fleet, key(n % 20), n) for n in range(300)]
    await asyncio.sleep(0.1)
    fleet.restart_shard()

    answers = await outcomes(callers)

    assert len(set(answers)) == 20
    assert max(fleet.engine.runs.values()) <= fleet.size
    await asyncio.sleep(1.0)
    assert all(client.reachable for client in fleet.clients)
    await nothing_is_held(fleet)


async def test_after_a_restart_keys_are_computed_once_again(fleet):
    await ask(fleet, key(1), 0)
    fleet.restart_shard()
    await outcomes(ask(fleet, key(2), number) for number in range(30))
    await asyncio.sleep(1.0)

    await outcomes(ask(fleet, key(3), number) for number in range(30))

    assert fleet.engine.runs[key(3)] == 1


async def test_while_the_coalescer_is_frozen_everybody_is_answered_within_one_call_and_a_run():
    fleet = Fleet()
    for wire in fleet.wires:
        wire.frozen = True
    began = asyncio.get_running_loop().time()

    answers = await outcomes(ask(fleet, K, number) for number in range(30))

    assert len(set(answers)) == 1
    assert asyncio.get_running_loop().time() - began == pytest.approx(
        fleet.bounds.call_s + fleet.engine.takes_s
    )
    assert sum(client.stats().uncoordinated for client in fleet.clients) == 3
    await fleet.close()


async def test_five_hundred_callers_who_leave_at_random_times_leave_nothing_behind(fleet):
    chance = random.Random(7)
    callers = [ask(fleet, key(n % 60), n) for n in range(500)]
    for caller in callers:
        asyncio.get_running_loop().call_later(chance.uniform(0, 0.6), caller.cancel)
    await outcomes(callers)
    await asyncio.sleep(1.0)
    await nothing_is_held(fleet)
    began = asyncio.get_running_loop().time()

    answers = await outcomes(ask(fleet, key(1_000 + n), n) for n in range(8))

    assert len(set(answers)) == 8
    assert asyncio.get_running_loop().time() - began == pytest.approx(fleet.engine.takes_s, abs=10 * CALL_S)


@pytest.mark.parametrize("seed", range(20))
async def test_whatever_happens_every_caller_ends_and_no_key_has_two_answers(seed):
    chance = random.Random(seed)
    fleet = Fleet(Bounds(lease_s=1.0, max_run_s=2.0, max_wait_s=3.0))
    wanted: list[bytes] = []
    callers: list[asyncio.Task[bytes]] = []
    for _ in range(200):
        wanted.append(key(chance.randrange(12)))
        callers.append(ask(fleet, wanted[-1], chance.randrange(fleet.size)))
        trouble(fleet, chance, callers)
        await asyncio.sleep(chance.choice([0.0, 0.001, 0.01, 0.1]))
    for wire in fleet.wires:
        wire.down = wire.frozen = False

    ends = await outcomes(callers)

    assert all(isinstance(end, bytes | EngineBroke | asyncio.CancelledError) for end in ends)
    answers = {(key, end) for key, end in zip(wanted, ends, strict=True) if isinstance(end, bytes)}
    assert len(answers) == len({key for key, _ in answers})
    await asyncio.sleep(20.0)
    await nothing_is_held(fleet)
    await fleet.close()


def trouble(fleet: Fleet, chance: random.Random, callers: list[asyncio.Task[bytes]]) -> None:
    """One mishap, most of the time none."""
    wire = chance.choice(fleet.wires)
    match chance.randrange(25):
        case 0:
            wire.down = not wire.down
        case 1:
            wire.frozen = not wire.frozen
        case 2:
            wire.lose_replies += 1
        case 3:
            fleet.restart_shard()
        case 4:
            fleet.engine.failures[key(chance.randrange(12))] = chance.randrange(4)
        case 5:
            fleet.engine.takes_s = chance.choice([0.001, 0.3, 2.5])
        case 6 | 7 | 8:
            chance.choice(callers).cancel()
        case _:
            pass


async def test_a_single_router_needs_no_coalescer():
    engine = Engine()
    router = Router(Alone(), {}, engine)

    answers = await outcomes(router.decide(K) for _ in range(100))

    assert len(set(answers)) == 1
    assert engine.runs == {K: 1}
