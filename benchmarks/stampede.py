"""What coalescing saves when equal requests arrive together, and what it costs a request that is alone.

    engine time   of 200 equal requests over three Routers on two nodes, over HTTP. Floor: as many requests
                  that differ. The engine takes 0.3 s for one; its runs are counted, not timed.
    extra         of a miss in a Router's process, from the body to the decision: with a Coalescer in another
                  process, less the same without one. Floor: a call of an idle actor.

Not measured: what waiting callers cost, which `benchmarks.coalescer` does.
"""

import asyncio
import itertools
import tempfile
import time
from collections.abc import Awaitable, Callable, Iterator
from dataclasses import asdict
from pathlib import Path
from typing import Any

import ray
import uvloop

from benchmarks.one_ray import Idle, one_ray
from benchmarks.result import result
from core.cache.cache import DecisionCache
from core.cache.stores.memory import MemoryStore
from core.coalescing.bounds import Bounds
from core.coalescing.client import Coalescer, Turns
from core.contract.request import Contract
from core.engines.fake import FakeEngine
from core.identity import Identity
from core.outcome import Source
from core.routing import Decider
from deployments.coalescer import MAX_CALLS, ActorShard, CoalescerShard
from tests.cluster.crowd import ask_all, request_body
from tests.cluster.fleet import ENGINE_S, WITHIN_S, Fleet, eventually, running_fleet

REQUESTS = 200
STAMPEDES = 3
ROUNDS = 7
ONE_AT_A_TIME = 100
PAUSE_S = 0.003  # so that a claim does not queue behind the settling of the one before
BOUNDS = Bounds(lease_s=10.0)

Step = Callable[[], Awaitable[object]]


def run() -> list[dict[str, Any]]:
    """Start a fleet, then a Ray with one shard; measure; stop them."""
    return [_stampedes(), _misses()]


def _stampedes() -> dict[str, Any]:
    with tempfile.TemporaryDirectory() as folder, running_fleet(Path(folder)) as fleet:
        return uvloop.run(_count(fleet))


async def _count(fleet: Fleet) -> dict[str, Any]:
    await eventually(fleet.is_whole)
    equal, different = [], []
    for number in range(STAMPEDES):
        equal.append(await _engine_s(fleet, [request_body(f"stampede {number}")] * REQUESTS))
        apart = [request_body(f"stampede {number}, request {each}") for each in range(REQUESTS)]
        different.append(await _engine_s(fleet, apart))
    target = f"<= {1 / REQUESTS}"
    return result(f"stampede, engine time of {REQUESTS} equal requests", equal, "s", different, target)


async def _engine_s(fleet: Fleet, bodies: list[bytes]) -> float:
    before = fleet.runs().total()
    replies = await ask_all(fleet.port, bodies, WITHIN_S)
    failed = [reply.status for reply in replies if reply.status != 200]
    if failed:
        raise RuntimeError(f"{len(failed)} of {len(bodies)} answers were not 200: {failed[0]}")
    return (fleet.runs().total() - before) * ENGINE_S


def _misses() -> dict[str, Any]:
    with one_ray():
        return uvloop.run(_compare())


async def _compare() -> dict[str, Any]:
    options: dict[str, Any] = {"num_cpus": 0, "max_concurrency": MAX_CALLS}
    shard: Any = ray.remote(CoalescerShard).options(**options)
    actor = shard.remote(asdict(BOUNDS))
    idle: Any = ray.remote(Idle).options(**options)
    other = idle.remote()
    coalescer = Coalescer([ActorShard("shard", lambda _: actor)], BOUNDS)
    bodies = (request_body(f"miss {number}") for number in itertools.count())
    together, alone = _miss(coalescer, bodies), _miss(None, bodies)

    async def call() -> None:
        await other.call.remote(b"as long as a claim")

    for step in (together, alone, call):
        await _alone_ms(step)  # the processes are up, and their code was run once
    extras, calls = [], []
    for _ in range(ROUNDS):
        calls.append(await _alone_ms(call))
        extras.append(await _alone_ms(together) - await _alone_ms(alone))
    if coalescer.stats().uncoordinated:
        raise RuntimeError(f"{coalescer.stats().uncoordinated} misses did not reach the Coalescer")
    await coalescer.close()
    return result("a miss, extra time with the Coalescer", extras, "ms", calls, "<= 1.5")


def _miss(turns: Turns | None, bodies: Iterator[bytes]) -> Step:
    """Decides a request that is not stored, with an engine that takes no time."""
    decider = Decider(
        contract=Contract(("jev-latest",)),
        engine=FakeEngine(),
        cache=DecisionCache(MemoryStore(max_entries=1_000_000)),
        clock=time.time,
        turns=turns,
    )
    lane = decider.lane(Identity("tenant", "deployment"))

    async def miss() -> None:
        outcome = await decider.decide(next(bodies), lane)
        if outcome.source is not Source.MODEL:
            raise AssertionError(f"a miss was answered by {outcome.source}. This is a bug.")

    return miss


async def _alone_ms(step: Step) -> float:
    """Mean milliseconds of a step that finds nothing under way."""
    took_s = 0.0
    for _ in range(ONE_AT_A_TIME):
        began = time.perf_counter()
        await step()
        took_s += time.perf_counter() - began
        await asyncio.sleep(PAUSE_S)
    return took_s / ONE_AT_A_TIME * 1e3


if __name__ == "__main__":
    from benchmarks.run import table

    print(table(run()))
