"""Decisions in the store: written as envelopes, and read with suspicion."""

import contextlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import Enum, auto
from typing import Final, NamedTuple

from core.cache.alarm import Alarm
from core.cache.decision import Decision
from core.cache.envelope import Corrupt, Foreign, Newer, decode, encode
from core.cache.guard import Guarded
from core.cache.purging import Purging
from core.cache.shape import answers_fit, same_shape
from core.cache.stats import Oddities, Tally
from core.cache.together import Together
from core.contract.questions import Question
from core.errors import StoreUnavailable
from core.identity import Identity

ROUNDS: Final = 3  # attempts to store where somebody else keeps changing what stands there


@dataclass(frozen=True, slots=True)
class Added:
    """What became of a fresh decision."""

    decision: Decision  # the one that counts: the fresh one, or the one stored before it
    won: bool  # True when that is the fresh one
    stored: bool  # False when it is not in the store, so that a repeat may get another answer


class Asked(NamedTuple):
    """On whose behalf a value is read, and when."""

    key: bytes
    identity: Identity
    now: float
    tally: Tally  # of the tenant


class Useless(Enum):
    """A value that is not replayed."""

    REPLACE = auto()  # nobody will ever replay it
    LEAVE = auto()  # somebody else may


class Vault:
    """The decisions of a store.

    Args:
        store: where they are.
        purging: what is fenced.
        alarm: hears of values that should not be there.
    """

    def __init__(self, store: Guarded, purging: Purging, alarm: Alarm) -> None:
        self._store = store
        self._purging = purging
        self._alarm = alarm
        self._lookups = Together(self._look_up)
        self.oddities = Oddities()

    async def find(self, asked: Asked, questions: Mapping[str, Question] | None) -> Decision | None:
        """The stored decision; None where there is none to replay, or the store does not say."""
        value = await self._lookups.call(asked)
        if value is None:
            return None
        found = self._read(value, asked)
        if isinstance(found, Decision):
            if questions is None or answers_fit(found.answers, questions):
                return found
            found = self._misfit(asked)
        if found is Useless.REPLACE:
            with contextlib.suppress(StoreUnavailable):
                await self._store.discard(asked.key, value, asked.now)
        return None

    async def settle(self, decision: Decision, value: bytes, asked: Asked) -> Added:
        """Store `value`, which is `decision` encoded, unless a decision is there: the first wins.

        Raises:
            StoreUnavailable: the store failed, or others kept changing what stands there.
        """
        key, now, expires_at = asked.key, asked.now, decision.expires_at
        for _ in range(ROUNDS):
            survivor = await self._store.add(key, value, expires_at, now)
            if survivor == value:
                return Added(decision, won=True, stored=True)
            found = self._read(survivor, asked)
            if isinstance(found, Decision):
                if same_shape(found.answers, decision.answers):
                    return Added(found, won=False, stored=True)
                found = self._misfit(asked)
            if found is Useless.LEAVE:
                return Added(decision, won=True, stored=False)
            if await self._store.replace(key, survivor, value, expires_at, now):
                return Added(decision, won=True, stored=True)
        raise StoreUnavailable("add", "the value kept changing")

    async def renew(self, decision: Decision, renewed: Decision, asked: Asked) -> bool:
        """Extend a stored decision; False where the store holds something else by now.

        Raises:
            StoreUnavailable: the store failed.
        """
        old, new = (encode(one, asked.identity.tenant) for one in (decision, renewed))
        if old is None or new is None:
            return False
        return await self._store.replace(asked.key, old, new, renewed.expires_at, asked.now)

    async def _look_up(self, lookups: Sequence[Asked]) -> Sequence[bytes | None]:
        try:
            values = await self._store.get_many([asked.key for asked in lookups], lookups[-1].now)
        except StoreUnavailable:  # counted and told already
            return [None] * len(lookups)
        return [values.get(asked.key) for asked in lookups]

    def _read(self, value: bytes, asked: Asked) -> Decision | Useless:
        found = decode(value, asked.key, asked.identity.tenant)
        if not isinstance(found, Decision):
            return self._note(found, asked)
        if found.expires_at is not None and found.expires_at <= asked.now:
            return Useless.REPLACE
        if not self._purging.allows(found, asked.identity):
            asked.tally.fenced += 1
            return Useless.REPLACE
        return found

    def _misfit(self, asked: Asked) -> Useless:
        self.oddities.misfits += 1
        self._alarm.ring("misfit", "a stored decision answers other questions than those asked", asked.now)
        return Useless.REPLACE

    def _note(self, odd: Foreign | Corrupt | Newer, asked: Asked) -> Useless:
        if isinstance(odd, Newer):
            self.oddities.newer += 1
            message = f"the store holds decisions of format {odd.version}, which this version cannot read"
            self._alarm.ring("newer", f"{message}; they are left alone", asked.now)
            return Useless.LEAVE
        if isinstance(odd, Foreign):
            self.oddities.foreign += 1
            message = f"the store returned a decision of another {odd.what}; it was not used"
            self._alarm.ring(
                "foreign", f"{message}. Is something between this process and the store?", asked.now
            )
        else:
            self.oddities.corrupt += 1
            self._alarm.ring("corrupt", f"the store returned no sound decision: {odd.why}", asked.now)
        return Useless.REPLACE
