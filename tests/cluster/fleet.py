"""Three Routers and two Models on two nodes, one store between them, and what a test sees of them."""

import asyncio
import os
import signal
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from deployments.processes import descendants
from tests.cluster.crowd import read
from tests.core.cache.servers import Server, valkey
from tests.running import Service, free_port, one_cluster, settings_for, start

ROUTERS = 3
MODELS = 2
MODEL_CALLS = 32  # in one Model at a time
ENGINE_S = 0.3
DEADLINE_S = 9.0
WITHIN_S = (
    2 * DEADLINE_S + 20
)  # an answer, also where its first Router died, and however busy this machine is
PATIENCE_S = 90.0  # for processes to be replaced
FLEETING = "fleeting"  # decisions about this question are kept for `TTL_S`
TTL_S = 6.0

SETTINGS: dict[str, Any] = {
    # No two runs give the same answer, so that a second one shows.
    "engine": {"kind": "fake", "delay_s": ENGINE_S, "fickle": True, "max_batch_tokens": 512},
    # What a slow store or Coalescer does is another test's. Here all share a few cores, and wait for one.
    "cache": {"store_deadline_s": 8.0, "rules": [{"question": FLEETING, "ttl_s": TTL_S}]},
    "coalescer": {"lease_s": 6.0, "max_wait_s": 8.0},
    "deadline_s": DEADLINE_S,
    "router": {"replicas": ROUTERS, "max_ongoing_requests": 5_000},
    "model": {"replicas": MODELS, "max_ongoing_requests": MODEL_CALLS},
}

LISTEN = "0A"  # in /proc/net/tcp
INGRESS_PORTS = range(30_000, 31_000)  # Serve's default


@dataclass(frozen=True, slots=True)
class Router:
    """One Router replica: its process, a port of its own, and its node's raylet."""

    pid: int
    port: int
    node: int


@dataclass
class Fleet:
    """A running fleet."""

    service: Service
    runs_file: Path

    @property
    def port(self) -> int:
        """Of the ingress before all Routers."""
        return self.service.port

    def routers(self) -> list[Router]:
        """Those that listen."""
        found = [(pid, listening_port(pid)) for pid in self.service.replicas("Router")]
        return [Router(pid, port, parent(pid)) for pid, port in found if port is not None]

    def models(self) -> list[int]:
        """Process ids of the Model replicas."""
        return self.service.replicas("Model")

    def shards(self) -> list[int]:
        """Process ids of the Coalescer."""
        return [pid for pid in descendants(self.service.process.pid) if is_titled(pid, "ray::CoalescerShard")]

    def runs(self) -> Counter[str]:
        """How often the engine began to answer each item."""
        return Counter(self.runs_file.read_text().split())

    async def reports(self) -> list[dict[str, Any]]:
        """`GET /v1/cache` of each Router."""
        return [(await read(router.port, "/v1/cache")).members for router in self.routers()]

    async def coalesced(self) -> int:
        """How many callers of all Routers waited for somebody else's computation."""
        return sum(report["coalesced"] for report in await self.reports())

    async def is_whole(self) -> bool:
        """Whether every process is there, reaches the Coalescer, and gets requests."""
        if (len(self.models()), len(self.shards()), len(self.routers())) != (MODELS, 1, ROUTERS):
            return False
        reachable = [report["coalescer"]["reachable"] for report in await self.reports()]
        seen = await asyncio.gather(*(read(self.port, "/health") for _ in range(4 * ROUTERS)))
        return all(reachable) and len({reply.router for reply in seen}) == ROUTERS

    async def is_at_rest(self) -> bool:
        """Whether no Router holds anything, and the Coalescer nothing for it."""
        reports = await self.reports()
        held = [
            (each["in_flight"], each["computing"], each["coalescer"]["running"], each["coalescer"]["waiting"])
            for each in reports
        ]
        return set(held) == {(0, 0, 0, 0)}

    async def all_compute(self) -> bool:
        """Whether every Router computes something that others may wait for."""
        return all([report["coalescer"]["running"] > 0 for report in await self.reports()])

    @contextmanager
    def engines_stand_still(self) -> Iterator[None]:
        """No Model replica does anything meanwhile."""
        frozen = self.models()
        for pid in frozen:
            os.kill(pid, signal.SIGSTOP)
        try:
            yield
        finally:
            for pid in frozen:
                with suppress(ProcessLookupError):  # it was killed meanwhile
                    os.kill(pid, signal.SIGCONT)


@contextmanager
def running_fleet(folder: Path) -> Iterator[Fleet]:
    """Start a store and a fleet, and stop both."""
    with one_cluster():
        store = Server(valkey())
        try:
            port, runs_file = free_port(), folder / "runs"
            runs_file.touch()
            engine = {**SETTINGS["engine"], "runs_file": str(runs_file)}
            settings = settings_for(folder, port, {**SETTINGS, "engine": engine, "store": store.url})
            path = folder / "settings.yaml"
            path.write_text(yaml.safe_dump(settings))
            service = start(path, port, "tests.cluster.two_nodes")
            try:
                yield Fleet(service, runs_file)
            finally:
                service.stop()
        finally:
            store.close()


async def eventually(holds: Callable[[], Awaitable[bool]]) -> None:
    """Wait until something holds that other processes bring about; some of them may be dying."""
    until = time.monotonic() + PATIENCE_S
    while True:
        with suppress(OSError, asyncio.IncompleteReadError):
            if await holds():
                return
        assert time.monotonic() < until, "it did not come to pass"
        await asyncio.sleep(0.05)


def listening_port(pid: int) -> int | None:
    """Where a Router's own HTTP server listens; None when it does not yet, or is gone."""
    try:
        links = {os.readlink(link) for link in Path(f"/proc/{pid}/fd").iterdir()}
        table = [line.split() for line in Path(f"/proc/{pid}/net/tcp").read_text().splitlines()[1:]]
    except OSError:
        return None
    for _, local, _, state, *_, inode in (row[:10] for row in table):
        port = int(local.rpartition(":")[2], 16)
        if state == LISTEN and port in INGRESS_PORTS and f"socket:[{inode}]" in links:
            return port
    return None


def parent(pid: int) -> int:
    """The process that started this one: for a replica, its node's raylet."""
    return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])


def is_titled(pid: int, title: str) -> bool:
    """Whether a process calls itself so."""
    try:
        return Path(f"/proc/{pid}/cmdline").read_text(errors="replace").startswith(title)
    except OSError:
        return False
