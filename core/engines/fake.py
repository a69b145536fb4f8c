"""An engine for tests: deterministic answers, with delays and failures by script."""

import asyncio
from collections.abc import Callable, Sequence
from hashlib import blake2b

from core.engines.base import Item, Limits, Reading

Script = Callable[[Item], Exception | None]


class FakeEngine:
    """Draw a distribution from a digest of the item, and remember every batch.

    Args:
        seed: engines with other seeds answer differently, and say so in their fingerprint.
        delay_s: how long each call takes.
        fails: what an item is answered with instead; None answers it.
        gate: where given, calls wait until it is set.
    """

    batch_invariant = True
    limits = Limits(max_tokens=1_000_000)

    def __init__(
        self,
        seed: int = 0,
        delay_s: float = 0.0,
        fails: Script | None = None,
        gate: asyncio.Event | None = None,
    ) -> None:
        self.name = "fake"
        self.fingerprint = f"fake-{seed}"
        self.batches: list[list[Item]] = []
        self._seed = seed
        self._delay_s = delay_s
        self._fails = fails
        self._gate = gate

    @property
    def runs(self) -> int:
        """How many times it was asked."""
        return len(self.batches)

    async def answer(self, items: Sequence[Item]) -> list[Reading | Exception]:
        """Answer each item, in order."""
        self.batches.append(list(items))
        if self._gate is not None:
            await self._gate.wait()
        if self._delay_s:
            await asyncio.sleep(self._delay_s)
        return [self._one(item) for item in items]

    async def check_health(self) -> None:
        """Always well."""

    async def close(self) -> None:
        """Nothing to free."""

    def _one(self, item: Item) -> Reading | Exception:
        failure = self._fails(item) if self._fails else None
        if failure is not None:
            return failure
        digest = blake2b(repr((self._seed, item.state, item.question)).encode()).digest()
        weights = [1 + digest[option % len(digest)] for option in range(item.question.size)]
        return Reading(tuple(weight / sum(weights) for weight in weights), len(item.state.split()))
