"""The Coalescer between processes, on a Ray of this test's own."""

import contextlib
import hashlib
import os
import signal
import sys
import time
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import pytest
import ray
from ray import serve
from ray.serve.handle import DeploymentHandle

from config.paths import CHECKOUT
from core.coalescing.bounds import Bounds
from core.coalescing.client import CoalescerStats, shard_of
from deployments.coalescer import coalescer_actors, connect
from tests.cluster.routers import Cluster, start
from tests.running import Host, one_cluster

BOUNDS = Bounds(max_wait_s=15.0)
PATIENCE_S = 60.0

pytestmark = [
    pytest.mark.cluster,
    pytest.mark.timeout(240),
]


@pytest.fixture(scope="module")
def local_ray(host: Host) -> Iterator[None]:
    host.stop()  # two Rays on this machine would share its ports
    with one_cluster():
        ray.init(
            address="local",
            num_cpus=4,
            include_dashboard=False,
            object_store_memory=100 * 1024 * 1024,
            log_to_driver=False,
            namespace="coalescer-tests",
            runtime_env={"env_vars": {"PYTHONPATH": str(CHECKOUT)}},
        )
        yield
        ray.shutdown()


@pytest.fixture(scope="module")
def cluster(local_ray: None) -> Iterator[Cluster]:
    """Three Router processes, a shard and an engine of 0.3 s, for all tests; each asks for its own keys."""
    cluster = start(BOUNDS, routers=3)
    yield cluster
    cluster.stop()


@pytest.fixture
def key(request: pytest.FixtureRequest) -> Callable[[int], bytes]:
    """Keys that no other test asks for."""
    return lambda number: hashlib.blake2b(f"{request.node.name} {number}".encode(), digest_size=16).digest()


def eventually(holds: Callable[[], bool]) -> None:
    """Wait until something holds that other processes bring about."""
    until = time.monotonic() + PATIENCE_S
    while not holds():
        assert time.monotonic() < until, "it did not come to pass"
        time.sleep(0.05)


def nothing_is_held(cluster: Cluster) -> bool:
    return cluster.load()["seats"] == 0 and all(s.waiting == s.running == 0 for s in cluster.stats())


def test_a_thousand_equal_requests_over_three_processes_run_the_engine_once(cluster, key):
    before = cluster.totals()

    replies = ray.get([router.decide_all.remote([key(0)] * 334) for router in cluster.routers])

    assert cluster.runs([key(0)]) == [1]
    assert len({answer for reply in replies for answer in reply}) == 1
    now = cluster.totals()
    now.subtract(before)
    assert (now["claims"], now["runs"], now["coalesced"], now["uncoordinated"]) == (3, 1, 2, 0)
    eventually(lambda: nothing_is_held(cluster))


def test_two_hundred_keys_by_twenty_copies_are_two_hundred_runs(cluster, key):
    keys = [key(number) for number in range(200)]

    replies = ray.get([router.decide_all.remote(keys * 7) for router in cluster.routers])

    assert cluster.runs(keys) == [1] * 200
    assert len({answer for reply in replies for answer in reply}) == 200
    eventually(lambda: nothing_is_held(cluster))


def test_when_half_of_the_callers_leave_at_random_times_the_rest_is_answered_and_nothing_stays_behind(
    cluster, key
):
    keys = [key(number % 100) for number in range(400)]

    replies = ray.get([router.decide_all.remote(keys, leaving=0.5) for router in cluster.routers])

    answers = {(key, answer) for reply in replies for key, answer in zip(keys, reply, strict=True) if answer}
    assert len(answers) == len({key for key, _ in answers}) == 100
    assert set(cluster.runs(keys)) == {1}
    eventually(lambda: nothing_is_held(cluster))


def test_when_a_router_is_killed_while_it_computes_one_of_the_others_takes_over(cluster, key):
    owner = cluster.add_router()
    lost = owner.decide_all.remote([key(0)])
    eventually(lambda: cluster.runs([key(0)]) == [1])
    waiting = [router.decide_all.remote([key(0)] * 10) for router in cluster.routers]
    os.kill(ray.get(owner.pid.remote()), signal.SIGKILL)

    replies = ray.get(waiting)

    assert len({answer for reply in replies for answer in reply}) == 1
    assert cluster.runs([key(0)])[0] <= 2  # one, where it was killed after it had stored its answer
    with contextlib.suppress(ray.exceptions.RayError):
        ray.get(lost)
    eventually(lambda: nothing_is_held(cluster))


def test_when_the_coalescer_is_killed_under_load_every_caller_is_answered_and_its_successor_takes_over(
    cluster, key
):
    keys = [key(number) for number in range(50)]
    under_way = [router.decide_all.remote(keys * 10) for router in cluster.routers]
    eventually(lambda: min(cluster.runs(keys)) == 1)
    ray.kill(cluster.shard)

    replies = ray.get(under_way)

    assert len({answer for reply in replies for answer in reply}) == 50
    assert max(cluster.runs(keys)) <= len(cluster.routers)

    cluster.start_shard()
    eventually(lambda: all(ray.get([router.reachable.remote() for router in cluster.routers])))
    ray.get([router.decide_all.remote([key(99)] * 100) for router in cluster.routers])
    assert cluster.runs([key(99)]) == [1]
    eventually(lambda: nothing_is_held(cluster))


class Replica:
    """A Router deployment of which only the turns are left."""

    def __init__(self) -> None:
        self._turns = connect(BOUNDS, shards=2)

    async def turn(self, key: bytes) -> CoalescerStats:
        async with self._turns.turn(key) as turn:
            turn.settle(b"answer")
        return self._turns.stats()

    async def kill_the_coalescer(self) -> None:
        for shard in range(2):
            ray.kill(serve.get_deployment_actor(f"coalescer-{shard}"))


def _runs_more_than(handle: DeploymentHandle[Any], key: bytes, before: int) -> bool:
    stats: CoalescerStats = handle.turn.remote(key).result()
    return stats.runs > before


def test_the_controller_creates_the_shards_recreates_them_and_replicas_find_them_again(local_ray, key):
    ray.cloudpickle.register_pickle_by_value(sys.modules[Replica.__module__])
    replica = serve.deployment(deployment_actors=[*coalescer_actors(BOUNDS, shards=2)])(Replica)
    try:
        handle = serve.run(replica.bind(), name="coalescer-test", route_prefix=None)
        keys = [key(number) for number in range(20)]
        stats = [handle.turn.remote(each).result() for each in keys]
        assert (stats[-1].runs, stats[-1].uncoordinated) == (20, 0)

        handle.kill_the_coalescer.remote().result()

        missed = [handle.turn.remote(each).result() for each in keys][-1]
        assert missed.uncoordinated == 20
        for shard in range(2):
            (mine, *_) = (each for each in keys if shard_of(each, 2) == shard)
            before = handle.turn.remote(mine).result().runs
            eventually(partial(_runs_more_than, handle, mine, before))
    finally:
        ray.cloudpickle.unregister_pickle_by_value(sys.modules[Replica.__module__])
        serve.shutdown()
