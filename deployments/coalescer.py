"""The Coalescer: one actor a shard, which the Serve controller creates, watches and removes with the app.

The actors belong to the Router deployment. A rolling update gives the new Routers actors of their own: until
the old Routers are gone a key may be computed once on either side, and the store keeps the answers equal.
"""

import asyncio
import time
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import asdict
from typing import Any, TypeVar

import ray
from ray import serve
from ray.serve.config import DeploymentActorConfig

from core.coalescing.bounds import Bounds
from core.coalescing.client import Coalescer
from core.coalescing.messages import Batch, Event, Verdict

T = TypeVar("T")

NUM_CPUS = 0.1  # what Ray reserves for a shard; a reservation, not a limit
MAX_CALLS = 10_000  # each Router has two calls in flight at most, and one of them only waits


class CoalescerShard:
    """One shard in a process of its own. Everything worth testing is in `core.coalescing`.

    The controller unpickles this class, and its process need not know our packages. So nothing of them is
    touched, annotations included, before an instance is made where the app's environment is.

    Args:
        bounds: the fields of `core.coalescing.bounds.Bounds`.
    """

    def __init__(self, bounds: dict[str, Any]) -> None:
        from core.coalescing.bounds import Bounds  # noqa: PLC0415
        from core.coalescing.shard import LocalShard  # noqa: PLC0415

        # Tokens must grow over restarts, and nothing outlives one but the clock.
        self._shard = LocalShard(Bounds(**bounds), first_token=time.time_ns())

    async def exchange(self, batch: "Batch") -> "Sequence[Verdict] | None":
        """Apply what a Router says."""
        return await self._shard.exchange(batch)

    async def listen(self, session: str) -> "Sequence[Event] | None":
        """Wait for what a Router has to hear."""
        return await self._shard.listen(session)

    async def load(self) -> dict[str, int]:
        """What is held at this moment: sessions, keys, seats."""
        return asdict(self._shard.load)


def shard_name(number: int) -> str:
    """The name of a shard's actor within its deployment."""
    return f"coalescer-{number}"


def coalescer_actors(bounds: Bounds, shards: int) -> list[DeploymentActorConfig]:
    """The actors of the Router deployment, for its option `deployment_actors`."""
    return [
        DeploymentActorConfig(
            name=shard_name(number),
            actor_class=ray.remote(CoalescerShard),
            init_kwargs={"bounds": asdict(bounds)},
            actor_options={"num_cpus": NUM_CPUS, "max_concurrency": MAX_CALLS},
        )
        for number in range(shards)
    ]


def connect(bounds: Bounds, shards: int) -> Coalescer:
    """The Coalescer as a Router replica uses it, on the replica's event loop."""
    return Coalescer([ActorShard(shard_name(number)) for number in range(shards)], bounds)


class ActorShard:
    """A `Shard` behind an actor that the controller may replace at any time.

    Args:
        name: of the actor.
        resolve: finds its handle by name. It blocks, and fails while the actor is being replaced.
    """

    def __init__(self, name: str, resolve: Callable[[str], Any] = serve.get_deployment_actor) -> None:
        self._name = name
        self._resolve = resolve
        self._handle: Any = None

    async def exchange(self, batch: Batch) -> Sequence[Verdict] | None:
        """Say something to the shard.

        Raises:
            Exception: whatever Ray raises when the actor is not reached.
        """
        return await self._call(lambda actor: actor.exchange.remote(batch))

    async def listen(self, session: str) -> Sequence[Event] | None:
        """Wait for something to happen to this session's waits.

        Raises:
            Exception: whatever Ray raises when the actor is not reached.
        """
        return await self._call(lambda actor: actor.listen.remote(session))

    async def _call(self, call: Callable[[Any], Awaitable[T]]) -> T:
        if self._handle is None:
            self._handle = await asyncio.to_thread(self._resolve, self._name)
        handle = self._handle
        try:
            return await call(handle)
        except BaseException:
            # The actor died, or the caller did not want to wait any longer: another may have taken its place.
            if self._handle is handle:
                self._handle = None
            raise
