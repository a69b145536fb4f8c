"""An engine for tests: deterministic answers, with delays and failures by script."""

import asyncio
import os
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
        fickle: no two calls answer an item alike, so that two runs of one request can be told apart.
        runs_file: where given, a file that gets a line for each item as its run begins, a digest of the item:
            for counting the runs of engines in other processes.
    """

    limits = Limits(max_tokens=1_000_000)

    def __init__(
        self,
        seed: int = 0,
        delay_s: float = 0.0,
        fails: Script | None = None,
        gate: asyncio.Event | None = None,
        *,
        fickle: bool = False,
        runs_file: str | None = None,
    ) -> None:
        self.name = "fake"
        self.batch_invariant = not fickle
        self.fingerprint = f"fake-{seed}"
        self.batches: list[list[Item]] = []
        self._seed = seed
        self._delay_s = delay_s
        self._fails = fails
        self._gate = gate
        self._fickle = fickle
        self._runs_file = runs_file

    @property
    def runs(self) -> int:
        """How many times it was asked."""
        return len(self.batches)

    async def answer(self, items: Sequence[Item]) -> list[Reading | Exception]:
        """Answer each item, in order."""
        if not items:  # somebody asks whether it is up
            return []
        self.batches.append(list(items))
        if self._runs_file is not None:
            _note(self._runs_file, items)
        if self._gate is not None:
            await self._gate.wait()
        if self._delay_s:
            await asyncio.sleep(self._delay_s)
        salt = os.urandom(16) if self._fickle else b""
        return [self._one(item, salt) for item in items]

    async def check_health(self) -> None:
        """Always well."""

    async def close(self) -> None:
        """Nothing to free."""

    def _one(self, item: Item, salt: bytes) -> Reading | Exception:
        failure = self._fails(item) if self._fails else None
        if failure is not None:
            return failure
        digest = blake2b(repr((self._seed, item.state, item.question)).encode(), salt=salt).digest()
        weights = [1 + digest[option % len(digest)] for option in range(item.question.size)]
        return Reading(tuple(weight / sum(weights) for weight in weights), len(item.state.split()))


def _note(path: str, items: Sequence[Item]) -> None:
    digests = (blake2b(repr((item.state, item.question)).encode(), digest_size=16) for item in items)
    lines = "".join(f"{digest.hexdigest()}\n" for digest in digests).encode()
    with open(path, "ab", buffering=0) as file:  # one write to its end: lines of other processes do not mix
        file.write(lines)
