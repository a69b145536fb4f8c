import asyncio
import contextlib

import pytest

from core.coalescing.bounds import Bounds
from core.coalescing.client import Alone, Coalescer, shard_of
from core.coalescing.line import LAST_RETRY_S, MAX_BATCH_BYTES
from core.coalescing.messages import Claim, Settle
from core.coalescing.shard import LocalShard
from core.errors import Overloaded
from tests.core.coalescing.fleet import CALL_S, FlakyShard, Fleet

K = b"k" * 16


def key(number: int) -> bytes:
    return number.to_bytes(16, "little")


def now() -> float:
    return asyncio.get_running_loop().time()


async def hold(
    client: Coalescer, wanted: bytes, until: asyncio.Event, value: bytes = b"answer"
) -> bytes | None:
    """Take a turn; when it is to compute, settle once `until` is set."""
    async with client.turn(wanted) as turn:
        if turn.answer is None:
            await until.wait()
            turn.settle(value)
        return turn.answer


async def idle(fleet: Fleet) -> None:
    """Let every call in flight end."""
    await asyncio.sleep(10 * CALL_S)


async def test_an_uncontended_turn_costs_one_call_before_and_one_behind_it(fleet):
    began = now()
    async with fleet.clients[0].turn(K) as turn:
        assert turn.answer is None
        assert now() - began == pytest.approx(2 * CALL_S)
        turn.settle(b"answer")
        assert now() - began == pytest.approx(2 * CALL_S)  # settling waits for nothing
    await idle(fleet)

    assert [len(batch.operations) for batch in fleet.wires[0].batches] == [1, 1]
    assert fleet.wires[0].listens == 0


async def test_a_second_router_gets_the_first_ones_answer(fleet):
    done = asyncio.Event()
    first = asyncio.create_task(hold(fleet.clients[0], K, done))
    await idle(fleet)
    second = asyncio.create_task(hold(fleet.clients[1], K, done))
    await idle(fleet)
    done.set()

    assert (await first, await second) == (None, b"answer")

    one, two = fleet.clients[0].stats(), fleet.clients[1].stats()
    assert (one.claims, one.runs, one.waits) == (1, 1, 0)
    assert (two.claims, two.runs, two.waits, two.coalesced) == (1, 0, 1, 1)


async def test_claims_that_arrive_during_a_call_travel_together_in_the_next(fleet):
    done = asyncio.Event()
    turns = [asyncio.create_task(hold(fleet.clients[0], key(0), done))]
    await asyncio.sleep(CALL_S / 2)
    turns += [asyncio.create_task(hold(fleet.clients[0], key(number), done)) for number in range(1, 200)]
    await idle(fleet)
    done.set()
    await asyncio.gather(*turns)

    assert [len(batch.operations) for batch in fleet.wires[0].batches[:2]] == [1, 199]
    assert fleet.wires[0].most_in_flight == 1


async def test_a_turn_left_without_an_answer_goes_to_another_waiter(fleet):
    handed = asyncio.Event()

    async def take_over() -> None:
        async with fleet.clients[1].turn(K) as turn:
            assert turn.answer is None
            handed.set()
            turn.settle(b"second try")

    with contextlib.suppress(ZeroDivisionError):
        async with fleet.clients[0].turn(K):
            other = asyncio.create_task(take_over())
            await idle(fleet)
            assert not handed.is_set()
            raise ZeroDivisionError
    await other

    assert fleet.clients[1].stats().takeovers == 1


async def test_a_caller_that_leaves_while_it_waits_frees_its_place_at_once(fleet):
    async with fleet.clients[0].turn(K) as turn:
        waiter = asyncio.create_task(hold(fleet.clients[1], K, asyncio.Event()))
        await idle(fleet)
        assert fleet.shard.load.seats == 2

        waiter.cancel()
        await idle(fleet)

        assert fleet.shard.load.seats == 1
        turn.settle(b"answer")
    stats = fleet.clients[1].stats()
    assert (stats.left, stats.waiting) == (1, 0)


async def test_a_caller_that_leaves_before_its_claim_was_answered_holds_no_key(fleet):
    leaver = asyncio.create_task(hold(fleet.clients[0], K, asyncio.Event()))
    await asyncio.sleep(CALL_S * 1.5)  # the shard has granted the run, and the answer is on its way
    leaver.cancel()
    await idle(fleet)

    assert fleet.shard.load.seats == 0
    async with fleet.clients[1].turn(K) as turn:
        assert turn.answer is None
    assert fleet.clients[1].stats().runs == 1


async def test_a_key_handed_to_a_caller_that_just_left_goes_on_to_the_next(fleet):
    owner, leaver, stayer = fleet.clients
    waiters = []
    async with owner.turn(K):
        for client in (leaver, stayer):
            waiters.append(asyncio.create_task(hold(client, K, asyncio.Event())))
            await idle(fleet)
    await asyncio.sleep(1.5 * CALL_S)  # the key was handed to the first, who does not know it yet

    waiters[0].cancel()
    await idle(fleet)

    assert (leaver.stats().takeovers, stayer.stats().takeovers) == (0, 1)
    waiters[1].cancel()


async def test_an_unreachable_shard_lets_everybody_compute_and_is_reached_again_by_itself(fleet):
    wire, client = fleet.wires[0], fleet.clients[0]
    wire.down = True
    async with client.turn(K) as turn:
        assert turn.answer is None
    began = now()
    async with client.turn(K) as turn:  # known to be down: nothing is waited for
        assert turn.answer is None
    assert now() == began
    assert not client.reachable

    wire.down = False
    await asyncio.sleep(LAST_RETRY_S)

    assert client.reachable
    async with client.turn(K):
        pass
    stats = client.stats()
    assert (stats.uncoordinated, stats.runs) == (2, 1)


async def test_a_shard_that_is_down_for_long_is_tried_ever_more_rarely(fleet):
    wire = fleet.wires[0]
    wire.down = True
    async with fleet.clients[0].turn(K):
        pass
    await asyncio.sleep(1.0)
    soon = wire.tries
    await asyncio.sleep(100 * LAST_RETRY_S)

    assert soon >= 4
    assert 100 <= wire.tries - soon <= 200


async def test_a_frozen_shard_delays_those_who_wait_for_its_word_by_one_call_at_most(fleet):
    fleet.wires[0].frozen = True
    began = now()

    async with fleet.clients[0].turn(K) as turn:
        assert turn.answer is None

    assert now() - began == pytest.approx(fleet.bounds.call_s)


async def test_waiters_of_a_shard_that_dies_compute_at_once(fleet):
    done = asyncio.Event()
    owner = asyncio.create_task(hold(fleet.clients[0], K, done))
    await idle(fleet)
    waiter = asyncio.create_task(hold(fleet.clients[1], K, done))
    await idle(fleet)
    began = now()

    fleet.restart_shard()
    done.set()

    assert (await owner, await waiter) == (None, None)
    assert now() == began
    assert fleet.clients[1].stats().uncoordinated == 1


async def test_the_owner_tells_its_waiters_although_its_line_broke_meanwhile(fleet):
    done = asyncio.Event()
    owner = asyncio.create_task(hold(fleet.clients[0], K, done))
    await idle(fleet)
    waiter = asyncio.create_task(hold(fleet.clients[1], K, asyncio.Event()))
    await idle(fleet)
    fleet.wires[0].down = True
    done.set()
    await owner
    await idle(fleet)
    assert not waiter.done()

    fleet.wires[0].down = False
    began = now()

    assert await waiter == b"answer"
    assert now() - began < fleet.bounds.lease_s


async def test_a_claim_whose_reply_was_lost_holds_no_key_once_the_line_is_back(fleet):
    fleet.wires[0].lose_replies = 1
    async with fleet.clients[0].turn(K) as turn:
        assert turn.answer is None
    assert fleet.clients[0].stats().uncoordinated == 1
    await asyncio.sleep(LAST_RETRY_S)

    assert fleet.shard.load.seats == 0


async def test_a_key_handed_over_before_the_verdict_to_wait_arrived_is_run(fleet):
    client, wire = fleet.clients[1], fleet.wires[1]
    other = asyncio.create_task(hold(fleet.clients[0], key(1), asyncio.Event()))
    await idle(fleet)
    listener = asyncio.create_task(hold(client, key(1), asyncio.Event()))
    await idle(fleet)
    wire.reply_s = 0.2
    async with fleet.clients[0].turn(K):
        late = asyncio.create_task(hold(client, K, asyncio.Event()))
        await idle(fleet)

    await asyncio.sleep(0.5)

    stats = client.stats()
    assert (stats.takeovers, stats.waits, stats.running, stats.waiting) == (1, 2, 1, 1)
    for task in (other, listener, late):
        task.cancel()


async def test_a_batch_opens_a_session_only_when_nobody_waits_under_it(fleet):
    owner = asyncio.create_task(hold(fleet.clients[0], K, asyncio.Event()))
    await idle(fleet)
    waiter = asyncio.create_task(hold(fleet.clients[1], K, asyncio.Event()))
    await idle(fleet)
    async with fleet.clients[1].turn(key(1)):
        pass
    waiter.cancel()
    await idle(fleet)

    first, *while_waiting, last = fleet.wires[1].batches
    assert (first.opening, last.opening) == (True, True)
    assert [batch.opening for batch in while_waiting] == [False, False]
    owner.cancel()


async def test_a_shard_that_forgot_a_waiting_router_lets_it_compute(fleet):
    owner = asyncio.create_task(hold(fleet.clients[0], K, asyncio.Event()))
    await idle(fleet)
    done = asyncio.Event()
    waiter = asyncio.create_task(hold(fleet.clients[1], K, done))
    await idle(fleet)
    fleet.wires[1].shard = LocalShard(fleet.bounds)  # without a word, which no real actor can do
    done.set()
    began = now()

    assert await waiter is None

    assert now() - began < 2 * fleet.bounds.listen_s
    stats = fleet.clients[1].stats()
    assert (stats.uncoordinated, fleet.clients[1].reachable) == (1, True)
    owner.cancel()


async def test_when_listening_fails_what_was_being_said_is_said_again_and_never_twice_at_once(fleet):
    client, wire = fleet.clients[1], fleet.wires[1]
    owner = asyncio.create_task(hold(fleet.clients[0], key(1), asyncio.Event()))
    await idle(fleet)
    listener = asyncio.create_task(hold(client, key(1), asyncio.Event()))
    await idle(fleet)
    wire.deaf = True
    async with client.turn(K) as turn:
        await asyncio.sleep(fleet.bounds.listen_s - 0.02)
        wire.reply_s = 0.5
        turn.settle(b"answer")
        await asyncio.sleep(0.4)
        wire.reply_s, wire.deaf = 0.0, False
    await asyncio.sleep(LAST_RETRY_S)

    assert client.reachable
    assert wire.most_in_flight == 1
    assert sum(isinstance(word, Settle) for batch in wire.batches for word in batch.operations) == 2
    assert fleet.shard.load.keys == 1
    for task in (owner, listener):
        task.cancel()


async def test_no_wait_is_longer_than_the_bound(fleet):
    owner = asyncio.create_task(hold(fleet.clients[0], K, asyncio.Event()))
    await idle(fleet)
    began = now()

    async with fleet.clients[1].turn(K) as turn:
        assert turn.answer is None
        assert now() - began == fleet.bounds.max_wait_s
        await idle(fleet)
        assert fleet.shard.load.seats == 1  # it does not hold a place any more

    assert fleet.clients[1].stats().uncoordinated == 1
    owner.cancel()


async def test_a_router_that_computes_for_longer_than_a_lease_keeps_it(fleet):
    async with fleet.clients[0].turn(K) as turn:
        waiter = asyncio.create_task(hold(fleet.clients[1], K, asyncio.Event()))
        await asyncio.sleep(fleet.bounds.max_wait_s - 1)
        turn.settle(b"slow answer")
        assert await waiter == b"slow answer"
    assert fleet.clients[0].stats().lapses == 0


async def test_an_answer_that_comes_after_its_run_lapsed_is_counted_and_changes_nothing():
    fleet = Fleet(Bounds(max_run_s=1.0))
    async with fleet.clients[0].turn(K) as turn:
        second = asyncio.create_task(hold(fleet.clients[1], K, asyncio.Event()))
        third = asyncio.create_task(hold(fleet.clients[2], K, asyncio.Event()))
        await asyncio.sleep(1.5)
        turn.settle(b"too late")
    await idle(fleet)

    assert fleet.clients[0].stats().lapses == 1
    assert not second.done()
    assert not third.done()
    assert sorted([fleet.clients[1].stats().takeovers, fleet.clients[2].stats().takeovers]) == [0, 1]
    second.cancel()
    third.cancel()
    await fleet.close()


async def test_more_waiters_than_the_bound_are_shed_with_a_time_to_come_back():
    fleet = Fleet(Bounds(max_waiters=1, retry_after_s=2.0))
    done = asyncio.Event()
    holders = []
    for client in fleet.clients[:2]:
        holders.append(asyncio.create_task(hold(client, K, done)))
        await idle(fleet)

    with pytest.raises(Overloaded) as refusal:
        await hold(fleet.clients[2], K, done)

    assert refusal.value.retry_after_s == 2.0
    stats = fleet.clients[2].stats()
    assert (stats.sheds, stats.waiting) == (1, 0)
    done.set()
    await asyncio.gather(*holders)
    await fleet.close()


async def test_an_answer_too_long_to_travel_lets_its_waiters_look_into_the_store():
    fleet = Fleet(Bounds(max_value_bytes=10))
    done = asyncio.Event()
    owner = asyncio.create_task(hold(fleet.clients[0], K, done, b"longer than ten bytes"))
    await idle(fleet)
    waiter = asyncio.create_task(hold(fleet.clients[1], K, done))
    await idle(fleet)
    done.set()

    assert (await owner, await waiter) == (None, None)
    await fleet.close()


async def test_long_answers_travel_in_several_batches(fleet):
    done = asyncio.Event()
    value = b"v" * (MAX_BATCH_BYTES // 3)
    await_all = [asyncio.create_task(hold(fleet.clients[0], key(n), done, value)) for n in range(7)]
    await idle(fleet)
    done.set()
    await asyncio.gather(*await_all)
    await idle(fleet)

    sizes = [sum(len(word.value) for word in batch.operations) for batch in fleet.wires[0].batches[1:]]
    assert sum(sizes) == 7 * len(value)
    assert max(sizes) <= MAX_BATCH_BYTES


async def test_closing_hands_on_what_is_held_and_ends_every_wait(fleet):
    holders = [asyncio.create_task(hold(fleet.clients[0], K, asyncio.Event()))]
    await idle(fleet)
    holders += [asyncio.create_task(hold(client, K, asyncio.Event())) for client in fleet.clients[1:]]
    await idle(fleet)

    await fleet.clients[0].close()
    await idle(fleet)

    assert sum(client.stats().takeovers for client in fleet.clients[1:]) == 1
    await fleet.clients[1].close()
    await fleet.clients[2].close()
    assert fleet.shard.load.seats == 0
    for holder in holders:
        holder.cancel()


async def test_a_closed_coalescer_lets_everybody_compute(fleet):
    await fleet.clients[0].close()

    async with fleet.clients[0].turn(K) as turn:
        assert turn.answer is None
    assert fleet.clients[0].stats().uncoordinated == 1


async def test_every_key_has_one_shard_and_shards_fill_evenly():
    wires = [FlakyShard(LocalShard(Bounds())) for _ in range(4)]
    client = Coalescer(wires, Bounds())
    for number in range(400):
        async with client.turn((number * 2_654_435_761 % 2**32).to_bytes(4, "big") + bytes(12)) as turn:
            turn.settle(b"answer")
    await client.close()

    claims = [sum(isinstance(word, Claim) for b in wire.batches for word in b.operations) for wire in wires]
    assert sum(claims) == 400
    assert min(claims) > 50
    assert shard_of(b"\x00\x00\x00\x07" + bytes(12), 4) == 3


async def test_one_shard_that_is_down_does_not_concern_the_others():
    wires = [FlakyShard(LocalShard(Bounds())) for _ in range(2)]
    wires[0].down = True
    client = Coalescer(wires, Bounds())
    for prefix in (0, 1):
        async with client.turn(prefix.to_bytes(4, "big") + bytes(12)):
            pass

    stats = client.stats()
    assert (stats.uncoordinated, stats.runs) == (1, 1)
    await client.close()


async def test_alone_every_turn_is_to_compute():
    alone = Alone()
    async with alone.turn(K) as turn:
        assert turn.answer is None
        turn.settle(b"answer")


def test_a_coalescer_without_shards_is_a_bug():
    with pytest.raises(AssertionError, match="Alone"):
        Coalescer([], Bounds())
