"""What coalescing adds to a decision that must be made, and how many claims one shard takes.

Measured, from a Router's event loop against a shard in another process on this machine:

    latency     an uncontended turn, from asking until it is this caller's to compute, one at a time. Settling
                adds nothing to it: that travels behind the caller's back. Floor: a call of an idle actor.
    throughput  turns taken and settled by 64 callers who come straight back. Floor: as many callers, each of
                whom calls an idle actor once instead.

Not measured: the engine, the store, HTTP.
"""

import asyncio
import os
import time
from collections.abc import Awaitable, Callable
from dataclasses import asdict
from typing import Any

import ray
import uvloop

from benchmarks.one_ray import Idle, one_ray
from benchmarks.result import result
from core.coalescing.bounds import Bounds
from core.coalescing.client import Coalescer
from deployments.coalescer import MAX_CALLS, ActorShard, CoalescerShard

BOUNDS = Bounds(lease_s=10.0)
ROUNDS = 7
ONE_AT_A_TIME = 150
CALLERS = 64
TURNS_EACH = 40
PAUSE_S = 0.003  # so that a claim does not queue behind the settling of the one before
ANSWER = b"as long as most: " + bytes(300)
LATENCY = "<= 1.5"
THROUGHPUT = ">= 5"

Step = Callable[[], Awaitable[object]]


def run() -> list[dict[str, Any]]:
    """Start a Ray, measure, stop it."""
    with one_ray():
        return uvloop.run(_measure())


async def _measure() -> list[dict[str, Any]]:
    options: dict[str, Any] = {"num_cpus": 0, "max_concurrency": MAX_CALLS}
    shard: Any = ray.remote(CoalescerShard).options(**options)
    actor = shard.remote(asdict(BOUNDS))
    idle: Any = ray.remote(Idle).options(**options)
    other = idle.remote()
    coalescer = Coalescer([ActorShard("shard", lambda _: actor)], BOUNDS)

    async def turn() -> None:
        async with coalescer.turn(os.urandom(16)) as mine:
            mine.settle(ANSWER)

    async def claim() -> None:
        async with coalescer.turn(os.urandom(16)):
            pass

    async def call() -> None:
        await other.call.remote(ANSWER)

    for step in (turn, call):
        await _took_s(step, CALLERS, 10)  # both processes are up, and their code was run once
    claims, calls, turns, peers = [], [], [], []
    for _ in range(ROUNDS):
        calls.append(1e3 * await _alone_s(call))
        claims.append(1e3 * await _alone_s(claim))
        peers.append(CALLERS * TURNS_EACH / await _took_s(call, CALLERS, TURNS_EACH))
        turns.append(CALLERS * TURNS_EACH / await _took_s(turn, CALLERS, TURNS_EACH))
    await coalescer.close()
    return [
        result("coalescer, an uncontended claim", claims, "ms", calls, LATENCY),
        result(f"coalescer, turns of {CALLERS} callers on one shard", turns, "turns/s", peers, THROUGHPUT),
    ]


async def _alone_s(step: Step) -> float:
    """Mean seconds of a step that finds nothing under way."""
    took_s = 0.0
    for _ in range(ONE_AT_A_TIME):
        began = time.perf_counter()
        await step()
        took_s += time.perf_counter() - began
        await asyncio.sleep(PAUSE_S)
    return took_s / ONE_AT_A_TIME


async def _took_s(step: Step, callers: int, times: int) -> float:
    """Seconds until every caller has made its steps, each one after the other."""

    async def caller() -> None:
        for _ in range(times):
            await step()

    began = time.perf_counter()
    await asyncio.gather(*(caller() for _ in range(callers)))
    return time.perf_counter() - began


if __name__ == "__main__":
    for row in run():
        print(row)
