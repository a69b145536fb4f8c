"""What a replay costs inside the Router's process, against what any server of its kind must do.

Measured: from the bytes of a body to the bytes of its response, for a decision in memory. Not measured: HTTP.

Two floors, in the same run:
    new body   BLAKE2b of the body, one dictionary lookup, `json.loads` of the body
    seen body  BLAKE2b of the body, one dictionary lookup

Three paths: a body in compact form (never parsed), a body in another spelling met for the first time
(parsed), and the same met again.
"""

import asyncio
import hashlib
import json
import time
from collections.abc import Callable
from typing import Any

import orjson

from benchmarks.result import result
from core.cache.cache import DecisionCache
from core.cache.stores.memory import MemoryStore
from core.contract.request import Contract
from core.engines.fake import FakeEngine
from core.identity import Identity
from core.routing import Decider, Lane

SIZES_CHARS = (140, 2_000, 20_000)
NEW_BODY = "<= 1.5"
SEEN_BODY = "<= 3"
ROUNDS = 15
SLICE_S = 0.02


def body_of(chars: int) -> dict[str, Any]:
    """A request with one yes/no question whose compact body has about `chars` characters."""
    body: dict[str, Any] = {
        "model": "jev-latest",
        "state": "",
        "questions": {"refund": {"type": "noul", "instructions": "Is a refund due?"}},
    }
    words = "The parcel came late and the box was open. " * (chars // 40 + 1)
    body["state"] = words[: chars - len(orjson.dumps(body))]
    return body


def per_call_us(step: Callable[[], object]) -> float:
    """Mean cost of one call over one slice of time, in microseconds."""
    calls, started = 0, time.perf_counter()
    while (took := time.perf_counter() - started) < SLICE_S:
        for _ in range(50):
            step()
        calls += 50
    return took / calls * 1e6


def measured(
    name: str, step: Callable[[], object], floor: Callable[[], object], target: str | None
) -> dict[str, Any]:
    """One row: both measured in turn, so that noise hits both."""
    steps, floors = [], []
    for _ in range(ROUNDS):
        floors.append(per_call_us(floor))
        steps.append(per_call_us(step))
    return result(name, steps, "us", floors, target)


def run() -> list[dict[str, Any]]:
    """Measure every size and path."""
    return [row for chars in SIZES_CHARS for row in asyncio.run(_measure(chars))]


async def _measure(chars: int) -> list[dict[str, Any]]:
    decider = Decider(
        contract=Contract(("jev-latest",)),
        engine=FakeEngine(),
        cache=DecisionCache(MemoryStore(max_entries=1_000)),
        clock=time.time,
    )
    lane = decider.lane(Identity("default", "bench"))
    compact = orjson.dumps(body_of(chars))
    spaced = json.dumps(body_of(chars), indent=1).encode()
    await decider.decide(compact, lane)

    known = {hashlib.blake2b(body, digest_size=16).digest(): body for body in (compact, spaced)}

    def seen_floor(body: bytes = compact) -> object:
        return known[hashlib.blake2b(body, digest_size=16).digest()]

    def new_floor(body: bytes = compact) -> object:
        json.loads(body)
        return known[hashlib.blake2b(body, digest_size=16).digest()]

    rows = [
        measured(f"replay.new.compact.{chars}", lambda: _replay(decider, lane, compact), new_floor, NEW_BODY),
        measured(
            f"replay.new.spaced.{chars}",
            lambda: _first_meeting(decider, lane, spaced),
            lambda: new_floor(spaced),
            NEW_BODY,
        ),
        measured(
            f"replay.seen.compact.{chars}",
            lambda: _replay(decider, lane, compact),
            seen_floor,
            SEEN_BODY,
        ),
    ]
    await decider.decide(spaced, lane)
    rows.append(
        measured(
            f"replay.seen.spaced.{chars}",
            lambda: _whole(decider, lane, spaced),
            lambda: seen_floor(spaced),
            SEEN_BODY,
        )
    )
    return rows


def _replay(decider: Decider, lane: Lane, body: bytes) -> bytes:
    now = time.time()
    decision = decider.replay(body, lane, now)
    assert decision is not None
    return decision.replay(now)


def _first_meeting(decider: Decider, lane: Lane, body: bytes) -> bytes:
    """What a body costs whose spelling was never met, while its decision is in memory."""
    decider.forget_spellings()
    return _whole(decider, lane, body)


def _whole(decider: Decider, lane: Lane, body: bytes) -> bytes:
    now = time.time()
    decision = decider.replay(body, lane, now)
    if decision is not None:
        return decision.replay(now)
    try:
        decider.decide(body, lane).send(None)  # it never waits: the decision is in memory
    except StopIteration as settled:
        response: bytes = settled.value.body(now)
        return response
    raise AssertionError("a decision in memory made the caller wait")


if __name__ == "__main__":
    for row in run():
        print(row)
