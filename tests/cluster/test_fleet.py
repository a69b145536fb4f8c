"""One computation per decision over three Routers on two nodes: what callers see, whatever is killed.

The engine never answers alike twice, so that whoever was given the answer of a second run would show.
"""

import asyncio
import os
import random
import signal
import sys
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Sequence

import pytest

from tests.cluster.crowd import Client, Reply, ask, ask_all, ask_or_leave, request_body
from tests.cluster.fleet import (
    ENGINE_S,
    FLEETING,
    MODEL_CALLS,
    MODELS,
    ROUTERS,
    TTL_S,
    WITHIN_S,
    Fleet,
    eventually,
    running_fleet,
)
from tests.running import Host

pytestmark = [
    pytest.mark.cluster,
    pytest.mark.timeout(300),
    pytest.mark.skipif(sys.platform != "linux", reason="looks into /proc"),
]

KEYS = 200
COPIES = 20
HEAD_START_S = 0.1


@pytest.fixture(scope="module")
def running(host: Host, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Fleet]:
    host.stop()  # two Rays on this machine would share its ports
    with running_fleet(tmp_path_factory.mktemp("fleet")) as fleet:
        yield fleet


@pytest.fixture
async def fleet(running: Fleet) -> Fleet:
    """The fleet, all of it there."""
    await eventually(running.is_whole)
    return running


@pytest.fixture
def bodies(request: pytest.FixtureRequest) -> Callable[[int], list[bytes]]:
    """Requests that no other test makes."""
    return lambda count: [request_body(f"{request.node.name} {number}") for number in range(count)]


@pytest.fixture
def load(bodies: Callable[[int], list[bytes]]) -> list[bytes]:
    """Every request twenty times, in any order."""
    copies = bodies(KEYS) * COPIES
    random.Random(0).shuffle(copies)
    return copies


def runs_since(before: Counter[str], fleet: Fleet) -> list[int]:
    """How often the engine ran since, for each item that it ran for."""
    return list((fleet.runs() - before).values())


def kill(pid: int) -> None:
    os.kill(pid, signal.SIGKILL)


async def storm(fleet: Fleet, load: Sequence[bytes], strike: Callable[[], None]) -> list[Reply]:
    """Send all of `load` at once, and strike while every Router computes and the engines stand still.

    Whoever is told to come back does so once.
    """
    async with asyncio.TaskGroup() as group:
        with fleet.engines_stand_still():
            asked = group.create_task(ask_all(fleet.port, load, WITHIN_S))
            await eventually(fleet.all_compute)
            strike()
    return asked.result() + await come_back(fleet, load, asked.result())


async def kill_a_model_at_work(fleet: Fleet, load: Sequence[bytes]) -> list[Reply]:
    """Send all of `load` at once, and kill a Model once there are more runs than the other one takes."""
    victim, runs = fleet.models()[0], fleet.runs().total()

    def watch() -> None:  # in a thread: the event loop is busy with clients
        until = time.monotonic() + WITHIN_S
        while fleet.runs().total() - runs <= MODEL_CALLS:
            assert time.monotonic() < until, "the engines do not run"
            time.sleep(0.005)
        kill(victim)

    replies, _ = await asyncio.gather(ask_all(fleet.port, load, WITHIN_S), asyncio.to_thread(watch))
    return replies


async def come_back(fleet: Fleet, load: Sequence[bytes], replies: Sequence[Reply]) -> list[Reply]:
    """The replies to those who were told to come back."""
    refused = [body for body, reply in zip(load, replies, strict=True) if reply.status == 503]
    return await ask_all(fleet.port, refused, WITHIN_S)


def assert_one_answer_for_each(keys: int, replies: Sequence[Reply]) -> None:
    """Every key was answered, and alike; nobody saw an error other than 503 with Retry-After."""
    assert {reply.status for reply in replies} <= {200, 503}
    assert all("retry-after" in reply.headers for reply in replies if reply.status == 503)
    decisions = defaultdict(set)
    for reply in replies:
        if reply.status == 200:
            decisions[reply.key].add(reply.decision)
    assert [len(different) for different in decisions.values()] == [1] * keys


async def assert_all_slots_are_free(fleet: Fleet) -> None:
    """Nothing is held any more, and more new requests than the Models take at once are answered."""
    await eventually(fleet.is_at_rest)
    fresh = [request_body(f"{time.time_ns()} {number}") for number in range(2 * MODELS * MODEL_CALLS)]
    replies = await ask_all(fleet.port, fresh, WITHIN_S)
    assert Counter((reply.status, reply.source) for reply in replies) == {(200, "model"): len(fresh)}
    await eventually(fleet.is_at_rest)


async def test_the_routers_stand_on_two_nodes(fleet):
    assert len({router.node for router in fleet.routers()}) == 2


async def test_a_thousand_equal_requests_over_three_routers_run_the_engine_once(fleet, bodies):
    runs, coalesced = fleet.runs(), await fleet.coalesced()

    replies = await ask_all(fleet.port, bodies(1) * 1_000, WITHIN_S)

    assert {reply.status for reply in replies} == {200}
    assert len({reply.router for reply in replies}) == ROUTERS
    assert len({reply.decision for reply in replies}) == 1
    assert runs_since(runs, fleet) == [1]
    sources = Counter(reply.source for reply in replies)
    assert sources["model"] == 1
    assert sources["coalesced"] + sources["replay"] == 999
    assert sources["coalesced"] == await fleet.coalesced() - coalesced


async def test_a_thousand_equal_requests_at_the_moment_of_expiry_run_the_engine_once_more(fleet):
    body = request_body("again and again", FLEETING)
    clients = [Client(fleet.port) for _ in range(1_000)]
    for client in clients:
        await client.connect()
    first = await ask(fleet.port, body, WITHIN_S)
    again = await ask(fleet.port, body, WITHIN_S)
    stored_at = time.time() - again.members["x_precedent"]["age_s"]
    runs = fleet.runs()

    await asyncio.sleep(stored_at + TTL_S - HEAD_START_S - time.time())
    async with asyncio.timeout(WITHIN_S):
        replies = await asyncio.gather(*(client.post(body) for client in clients))

    for client in clients:
        client.leave()
    assert (first.source, again.source) == ("model", "replay")
    assert {reply.status for reply in replies} == {200}
    assert len({reply.router for reply in replies}) == ROUTERS
    assert runs_since(runs, fleet) == [1]
    assert len({reply.decision for reply in replies} - {first.decision}) == 1
    assert Counter(reply.source for reply in replies)["model"] == 1


async def test_two_hundred_requests_by_twenty_copies_are_two_hundred_runs(fleet, load):
    runs = fleet.runs()

    replies = await ask_all(fleet.port, load, WITHIN_S)

    assert {reply.status for reply in replies} == {200}
    assert_one_answer_for_each(KEYS, replies)
    assert runs_since(runs, fleet) == [1] * KEYS


async def test_when_a_router_is_killed_while_it_computes_its_callers_are_answered_by_others(fleet, load):
    victim = fleet.routers()[0]

    replies = await storm(fleet, load, lambda: kill(victim.pid))

    assert_one_answer_for_each(KEYS, replies)
    await assert_all_slots_are_free(fleet)


async def test_when_the_coalescer_is_killed_nobody_gets_another_answer_and_its_successor_takes_over(
    fleet, load, bodies
):
    (victim,) = fleet.shards()

    replies = await storm(fleet, load, lambda: kill(victim))

    assert_one_answer_for_each(KEYS, replies)
    assert not any(reply.sent_again for reply in replies)
    await assert_all_slots_are_free(fleet)

    await eventually(fleet.is_whole)
    runs = fleet.runs()
    await ask_all(fleet.port, [request_body("told to its successor")] * 300, WITHIN_S)
    assert runs_since(runs, fleet) == [1]


async def test_when_a_model_is_killed_under_load_the_other_one_answers(fleet, load):
    replies = await kill_a_model_at_work(fleet, load)
    replies += await come_back(fleet, load, replies)

    assert_one_answer_for_each(KEYS, replies)
    assert not any(reply.sent_again for reply in replies)
    await assert_all_slots_are_free(fleet)


async def test_a_crash_of_one_of_two_models_is_seen_by_no_caller(fleet, bodies):
    replies = await kill_a_model_at_work(fleet, bodies(100))

    assert {reply.status for reply in replies} == {200}


async def test_when_every_second_client_leaves_at_a_random_moment_the_others_are_answered(fleet, load):
    chance, runs = random.Random(1), fleet.runs()

    staying, _ = await asyncio.gather(
        ask_all(fleet.port, load[::2], WITHIN_S),
        asyncio.gather(*(ask_or_leave(fleet.port, b, chance.uniform(0, 4 * ENGINE_S)) for b in load[1::2])),
    )

    assert {reply.status for reply in staying} == {200}
    assert_one_answer_for_each(KEYS, staying)
    assert runs_since(runs, fleet) == [1] * KEYS
    await assert_all_slots_are_free(fleet)


async def test_after_five_hundred_requests_that_their_clients_gave_up_all_slots_are_free(fleet, bodies):
    chance = random.Random(2)

    await asyncio.gather(*(ask_or_leave(fleet.port, body, chance.uniform(0, 2)) for body in bodies(500)))

    await assert_all_slots_are_free(fleet)


async def test_when_the_engines_hang_every_caller_is_told_to_come_back_and_no_slot_is_lost(fleet, bodies):
    with fleet.engines_stand_still():
        replies = await ask_all(fleet.port, bodies(3 * MODELS * MODEL_CALLS), WITHIN_S)

    assert {(reply.status, reply.headers["retry-after"]) for reply in replies} == {(503, "1")}
    await assert_all_slots_are_free(fleet)
