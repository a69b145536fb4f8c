"""What a stored decision costs: time per lookup and per write, bytes, and a server that freezes.

Each store is held against the bare client doing the same in the same run: one pipeline of as many GET or
SET NX GET commands for Valkey, one SELECT or INSERT after another for SQLite. Ours includes the guard, the
fences, decoding the decision, checking that it answers the questions, and one task per caller. Valkey runs on
this machine and shares its cores.

A choice of 77 has no target: it is stored compressed, a third as large and twice as slow to read.

Not measured: replays from memory beyond `peek` (see `replay_path`), HTTP, a network.
"""

import asyncio
import itertools
import math
import os
import sqlite3
import tempfile
import time
from collections.abc import Awaitable, Callable
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, Final

import orjson
import uvloop
from redis.asyncio import Redis

from benchmarks.result import result
from core.cache.cache import DecisionCache, Limits
from core.cache.decision import Decision
from core.cache.envelope import encode
from core.cache.guard import Guarding
from core.cache.retention import Retention
from core.cache.stores import open_store
from core.cache.stores.memory import MemoryStore
from core.contract.questions import Choice, Noul, Question
from core.identity import Identity
from tests.core.cache.proxy import FaultProxy
from tests.core.cache.servers import Server, valkey

AT_ONCE: Final = 64
ROUNDS: Final = 25
BATCHES: Final = 20  # in a round
FILLS: Final = 40  # of AT_ONCE decisions, in a file
IN_FLIGHT: Final = 200
FAULT_S: Final = 3.0
SOMEBODY: Final = Identity("acme", "bench")
PATIENT: Final = Guarding(deadline_s=5.0)  # a slow moment of the machine is no failure of the store
FORGETFUL: Final = Limits(memory_entries=1, grace_s=None)  # so that every lookup reaches the store

Step = Callable[[], Awaitable[object]]


def noul() -> dict[str, Any]:
    """Answers to one yes/no question."""
    return {"refund": {"type": "noul", "noul": 0.912345}}


def choice(options: int) -> dict[str, Any]:
    """Answers to one question with so many options, named as in a support desk."""
    words = ("card", "transfer", "refund", "delivery", "cash", "top up", "exchange", "fee", "pin", "limit")
    names = [f"{a}_{b}" for a, b in itertools.islice(itertools.product(words, words), options)]
    weights = [1.0 / (rank + 1) ** 2 * (1 + math.sin(rank)) + 1e-5 for rank in range(options)]
    probabilities = {name: round(w / sum(weights), 6) for name, w in zip(names, weights, strict=True)}
    return {
        "intent": {
            "type": "choice",
            "choice": names[0],
            "probabilities": probabilities,
            "confidence": 0.812345,
        }
    }


SHAPES: Final = {"noul": noul(), "choice of 5": choice(5), "choice of 77": choice(77)}
QUESTIONS: Final[dict[str, dict[str, Question]]] = {
    name: {
        question: Choice(None, tuple(answer["probabilities"]), ())
        if "choice" in answer
        else Noul("?", None, None)
        for question, answer in answers.items()
    }
    for name, answers in SHAPES.items()
}


def decision(key: bytes, answers: dict[str, Any]) -> Decision:
    """A fresh decision with these answers."""
    return Decision(
        key=key,
        model="all-MiniLM-L6-v2",
        answers=orjson.dumps(answers),
        margins=dict.fromkeys(answers, 0.824691),
        input_tokens=42,
    )


def run() -> list[dict[str, Any]]:
    """Measure everything."""
    with uvloop_runner() as runner, tempfile.TemporaryDirectory() as folder:
        server = Server(valkey())
        try:
            return [
                *_sizes(),
                runner.run(_peek()),
                *runner.run(_valkey(server)),
                *runner.run(_sqlite(Path(folder) / "decisions.sqlite")),
                *runner.run(_server_bytes(server)),
                *runner.run(_file_bytes(Path(folder) / "x")),
                runner.run(_frozen(server)),
            ]
        finally:
            server.close()


def uvloop_runner() -> asyncio.Runner:
    """An event loop as the Router has it."""
    return asyncio.Runner(loop_factory=uvloop.new_event_loop)


def _sizes() -> list[dict[str, Any]]:
    rows = []
    for name, answers in SHAPES.items():
        value = encode(replace(decision(os.urandom(16), answers), stored_at=time.time()), SOMEBODY.tenant)
        assert value is not None
        target = "<= 320" if name == "choice of 5" else None
        rows.append(result(f"stores.bytes.{name}", [len(value)], "bytes", target=target))
    return rows


async def _peek() -> dict[str, Any]:
    cache, keys = DecisionCache(MemoryStore()), [os.urandom(16) for _ in range(10_000)]
    now = time.time()
    await cache.maintain(now)
    for key in keys:
        await cache.add(decision(key, noul()), SOMEBODY, now)
    took = []
    for _ in range(ROUNDS):
        started = time.perf_counter()
        for key in keys:
            cache.peek(key, now)
        took.append((time.perf_counter() - started) / len(keys) * 1e6)
    return result("stores.memory.peek", took, "us", target="<= 0.5")


async def _valkey(server: Server) -> list[dict[str, Any]]:
    cache = DecisionCache(open_store(server.url, max_entries=1), Retention(ttl_s=3_600), FORGETFUL, PATIENT)
    bare = Redis.from_url(server.url, protocol=2)
    stored = {name: await _fill(cache, answers) for name, answers in SHAPES.items()}
    absent = [os.urandom(16) for _ in range(AT_ONCE)]

    async def pipeline_of_gets(keys: list[bytes]) -> object:
        pipe = bare.pipeline(transaction=False)
        for key in keys:
            pipe.get(b"precedent:" + key)
        return await pipe.execute()

    async def pipeline_of_sets() -> object:
        pipe = bare.pipeline(transaction=False)
        for key in _fresh_keys():
            pipe.set(b"bare:" + key, value, nx=True, get=True, px=3_600_000)
        return await pipe.execute()

    value = encode(decision(absent[0], choice(5)), SOMEBODY.tenant) or b""
    rows = [
        await _compare(
            f"stores.valkey.hit.{name}",
            partial(_look_up, cache, keys, QUESTIONS[name]),
            partial(pipeline_of_gets, keys),
            None if name == "choice of 77" else "<= 1.3",
        )
        for name, keys in stored.items()
    ]
    rows.append(
        await _compare(
            "stores.valkey.miss", lambda: _look_up(cache, absent), lambda: pipeline_of_gets(absent), "<= 1.3"
        )
    )
    rows.append(await _compare("stores.valkey.add", lambda: _add(cache), pipeline_of_sets, None))
    turns = itertools.cycle(stored["choice of 5"])  # never the one that is still in memory

    async def one_get() -> object:
        return await bare.get(b"precedent:" + next(turns))

    async def one_lookup() -> object:
        return await cache.get(next(turns), SOMEBODY, time.time(), QUESTIONS["choice of 5"])

    rows.append(await _compare("stores.valkey.hit.alone", one_lookup, one_get, None, calls=1))
    await bare.aclose()
    await cache.close()
    return rows


async def _sqlite(path: Path) -> list[dict[str, Any]]:
    url = f"sqlite:///{path}"
    cache = DecisionCache(open_store(url, max_entries=10**6), Retention(ttl_s=3_600), FORGETFUL, PATIENT)
    keys = await _fill(cache, choice(5))
    absent = [os.urandom(16) for _ in range(AT_ONCE)]
    value = encode(decision(absent[0], choice(5)), SOMEBODY.tenant) or b""
    bare = sqlite3.connect(path.with_name("bare.sqlite"), isolation_level=None)
    bare.execute("PRAGMA journal_mode = WAL")
    bare.execute("PRAGMA synchronous = NORMAL")
    bare.execute("CREATE TABLE entry (key BLOB PRIMARY KEY, expires_at REAL, value BLOB)")
    bare.executemany("INSERT INTO entry VALUES (?, NULL, ?)", [(key, value) for key in keys])

    async def selects(wanted: list[bytes]) -> object:
        select = "SELECT value FROM entry WHERE key = ?"
        return [bare.execute(select, (key,)).fetchone() for key in wanted]

    async def inserts() -> object:
        insert = "INSERT OR IGNORE INTO entry VALUES (?, NULL, ?)"
        return [bare.execute(insert, (key, value)) for key in _fresh_keys()]

    rows = [
        await _compare(
            "stores.sqlite.hit",
            lambda: _look_up(cache, keys, QUESTIONS["choice of 5"]),
            lambda: selects(keys),
            None,
        ),
        await _compare("stores.sqlite.miss", lambda: _look_up(cache, absent), lambda: selects(absent), None),
        await _compare("stores.sqlite.add", lambda: _add(cache), inserts, None),
    ]
    bare.close()
    await cache.close()
    return rows


async def _compare(
    name: str, ours: Step, bare: Step, target: str | None, calls: int = AT_ONCE
) -> dict[str, Any]:
    values, floors = [], []
    for _ in range(ROUNDS):
        floors.append(await _per_call_us(bare, calls))
        values.append(await _per_call_us(ours, calls))
    return result(name, values, "us", floors, target)


async def _per_call_us(step: Step, calls: int) -> float:
    started = time.perf_counter()
    for _ in range(BATCHES):
        await step()
    return (time.perf_counter() - started) / BATCHES / calls * 1e6


async def _fill(cache: DecisionCache, answers: dict[str, Any]) -> list[bytes]:
    keys = _fresh_keys()
    for key in keys:
        added = await cache.add(decision(key, answers), SOMEBODY, time.time())
        assert added.stored
    return keys


async def _look_up(
    cache: DecisionCache, keys: list[bytes], questions: dict[str, Question] | None = None
) -> object:
    now = time.time()
    return await asyncio.gather(*(cache.get(key, SOMEBODY, now, questions) for key in keys))


async def _add(cache: DecisionCache) -> object:
    now, answers = time.time(), SHAPES["choice of 5"]
    fresh = [decision(key, answers) for key in _fresh_keys()]
    return await asyncio.gather(*(cache.add(one, SOMEBODY, now) for one in fresh))


def _fresh_keys() -> list[bytes]:
    return [os.urandom(16) for _ in range(AT_ONCE)]


async def _server_bytes(server: Server) -> list[dict[str, Any]]:
    cache = DecisionCache(open_store(server.url, max_entries=1), Retention(ttl_s=3_600), FORGETFUL, PATIENT)
    rows = []
    with server.client() as client:
        for name, answers in SHAPES.items():
            keys = await _fill(cache, answers)
            used = [float(client.memory_usage(b"precedent:" + key)) for key in keys]
            rows.append(result(f"stores.valkey.bytes.{name}", used, "bytes"))
    await cache.close()
    return rows


async def _file_bytes(path: Path) -> list[dict[str, Any]]:
    rows = []
    for name, answers in SHAPES.items():
        file = path.with_name(f"{name}.sqlite")
        cache = DecisionCache(
            open_store(f"sqlite:///{file}", 10**6), Retention(ttl_s=3_600), FORGETFUL, PATIENT
        )
        for _ in range(FILLS):
            await _fill(cache, answers)
        await cache.close()
        rows.append(result(f"stores.sqlite.bytes.{name}", [file.stat().st_size / FILLS / AT_ONCE], "bytes"))
    return rows


async def _frozen(server: Server) -> dict[str, Any]:
    """How much the 99th percentile of a request rises while the server is frozen."""
    async with FaultProxy(server.port).running() as proxy:
        cache = DecisionCache(open_store(proxy.url, max_entries=1))
        await cache.maintain(time.time())
        healthy = await _latencies_ms(cache)
        proxy.freeze()
        frozen = await _latencies_ms(cache)
        proxy.thaw()
        await cache.close()
    return result("stores.frozen.p99_rise", [_p99(frozen) - _p99(healthy)], "ms", target="<= 50")


async def _latencies_ms(cache: DecisionCache) -> list[float]:
    stop_at = time.perf_counter() + FAULT_S
    took: list[float] = []

    async def callers() -> None:
        while (started := time.perf_counter()) < stop_at:
            key = os.urandom(16)
            if await cache.get(key, SOMEBODY, time.time()) is None:
                await cache.add(decision(key, SHAPES["noul"]), SOMEBODY, time.time())
            took.append((time.perf_counter() - started) * 1e3)
            await asyncio.sleep(0.05)  # so that the machine is busy and not saturated

    await asyncio.gather(*(callers() for _ in range(IN_FLIGHT)))
    return took


def _p99(values: list[float]) -> float:
    return sorted(values)[int(0.99 * len(values))]


if __name__ == "__main__":
    from benchmarks.run import table

    print(table(run()))
