"""Who answers: the store, or the engine. The whole policy, in the order in which it is asked.

    1. a decision in memory, found by the body itself     no parsing, no waiting
    2. a decision in memory, found by the request's key
    3. the flight for that key, if one is in the air
    4. a decision in the store
    5. another Router's computation of that key, if one is under way
    6. the engine; what it says is stored, and the first decision stored is everybody's answer

Evidence is checked before the first step and after the last: what rests on expired evidence is not replayed,
not computed and not stored. A busy engine sheds new computations, and nothing that the first four steps can
answer.
"""

import asyncio
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from enum import StrEnum
from functools import lru_cache

from core.cache import envelope
from core.cache.decision import Decision
from core.cache.modes import CacheView
from core.coalescing.client import Alone, Turns
from core.contract.batch import open_batch
from core.contract.request import Contract, Opened, Request, open_body, read
from core.contract.terms import PLAIN, Terms
from core.engines.base import Engine
from core.errors import EvidenceExpired, MalformedBody, NotCached, Overloaded, PrecedentError, RetryLater
from core.flights import SingleFlight
from core.identity import Identity, KeyOf, keyer
from core.inference import infer
from core.spellings import Spellings

MAX_LANES = 10_000


class Source(StrEnum):
    """Where an answer came from, as `x_precedent.source` says it."""

    REPLAY = "replay"
    MODEL = "model"
    COALESCED = "coalesced"


@dataclass(frozen=True, slots=True)
class Outcome:
    """A decision, where it came from, and whether the store has it."""

    decision: Decision
    source: Source
    stored: bool = True

    def body(self, now: float, thresholds: Mapping[str, float] | None = None) -> bytes:
        """The response body, with margins by the caller's own thresholds."""
        if self.source is Source.REPLAY:
            return self.decision.replay(now, thresholds)
        return self.decision.first_reply(self.source, thresholds, stored=self.stored)

    @property
    def usage(self) -> tuple[int, int]:
        """Input and output tokens of this call's own inference."""
        return self.decision.usage(self.source)


@dataclass(frozen=True, slots=True)
class Lane:
    """Requests of one identity, with what is the same for all of them."""

    identity: Identity
    key_of: KeyOf
    cache: CacheView


@dataclass(frozen=True, slots=True)
class Admission:
    """How much may wait, and how long.

    Beyond the counts a caller gets `Overloaded`; a replay never does.
    """

    deadline_s: float = 9.0  # for one computation
    max_computing: int = 1_000  # keys that this process computes at a time
    max_waiting_per_key: int = 1_000  # callers of one key
    retry_after_s: float = 1.0


@dataclass(frozen=True, slots=True)
class _Way:
    """What sets one computation of a key apart from another; only equals share a flight."""

    key: bytes
    look_up: bool  # a stored decision will do
    store: bool


class Decider:
    """Settle requests.

    Args:
        contract: what this deployment accepts.
        engine: the model, in this process or behind a handle.
        cache: where decisions are kept.
        clock: Unix seconds.
        turns: coordinates with other processes; nobody else computes when left out.
        admission: how much may wait, and how long.
        tenant_caches: the cache as tenants with a mode of their own see it.
    """

    def __init__(
        self,
        contract: Contract,
        engine: Engine,
        cache: CacheView,
        clock: Callable[[], float],
        turns: Turns | None = None,
        admission: Admission | None = None,
        tenant_caches: Mapping[str, CacheView] | None = None,
    ) -> None:
        self._contract = contract
        self._engine = engine
        self._clock = clock
        self._turns = turns or Alone()
        self._is_shared = turns is not None
        self._admission = admission or Admission()
        self._flights: SingleFlight[_Way, Outcome] = SingleFlight(
            self._admission.deadline_s, self._admission.max_waiting_per_key, is_worth_another_try
        )
        self._spellings = Spellings()
        self._computing = 0
        self.coalesced: Counter[str] = Counter()  # by tenant

        @lru_cache(MAX_LANES)
        def lane(identity: Identity) -> Lane:
            seen = (tenant_caches or {}).get(identity.tenant, cache)
            return Lane(identity, keyer(identity, engine.fingerprint), seen)

        self.lane = lane

    def replay(self, body: bytes, lane: Lane, now: float, terms: Terms = PLAIN) -> Decision | None:
        """The decision in memory for this body. Where there is one, there was a valid request.

        Raises:
            EvidenceExpired: the evidence is no longer valid.
        """
        if terms is not PLAIN:
            _refuse_expired_evidence(terms, now)
            if terms.no_cache:
                return None
        decision = self._peek(body, lane, now)
        if decision is None or terms is PLAIN or _is_young(decision, terms, now):
            return decision
        return None

    async def decide(self, body: bytes, lane: Lane, terms: Terms = PLAIN) -> Outcome:
        """Settle a request: replay its decision, or make it.

        Raises:
            CallerError: the body is not a valid request, its evidence has expired, or only a stored decision
                was wanted and there is none.
            RetryLater: no answer could be had; nothing was stored.
        """
        _refuse_expired_evidence(terms, self._clock())
        opened = open_body(body)
        self._spellings.learn(body, opened.compact, lane.key_of(opened.compact), lane.key_of)
        return await self.settle(opened, lane, terms)

    async def settle(self, opened: Opened, lane: Lane, terms: Terms = PLAIN) -> Outcome:
        """Do what `decide` does, for a body that was decoded before."""
        now = self._clock()
        _refuse_expired_evidence(terms, now)
        key = lane.key_of(opened.compact)
        decision = None if terms.no_cache else lane.cache.peek(key, now)
        if decision is not None and _is_young(decision, terms, now):
            return _replayed(decision)
        request = read(opened, self._contract)
        if decision is None and _is_picky(terms):
            decision = await lane.cache.get(key, lane.identity, now, request.questions)
            if decision is not None and _is_young(decision, terms, now):
                return _replayed(decision)
        if terms.only_if_cached:
            raise NotCached
        way = _Way(key, decision is None and not terms.no_cache, not terms.no_store)
        return await self._fly(way, request, lane, terms)

    async def decide_batch(
        self, body: bytes, lane: Lane, terms: Terms = PLAIN
    ) -> list[Outcome | PrecedentError]:
        """Settle many requests, in order.

        Repeats among them are computed once, and a failure is its item's alone.

        Raises:
            CallerError: the body is not a batch.
        """
        settled = await asyncio.gather(
            *(self._settle_part(part, lane, terms) for part in open_batch(body)), return_exceptions=True
        )
        return [_outcome_or_error(one) for one in settled]

    @property
    def in_flight(self) -> int:
        """How many computations, and lookups before one, are under way."""
        return len(self._flights)

    @property
    def computing(self) -> int:
        """How many of them take a place among `Admission.max_computing`."""
        return self._computing

    def forget_spellings(self) -> None:
        """Meet every spelling as if for the first time."""
        self._spellings.forget()

    async def drain(self) -> None:
        """Wait for every computation in progress."""
        await self._flights.drain()

    def _peek(self, body: bytes, lane: Lane, now: float) -> Decision | None:
        digest = lane.key_of(body)
        decision = lane.cache.peek(digest, now)
        if decision is not None:
            return decision
        key = self._spellings.key_of(body, digest, lane.key_of)
        return None if key is None else lane.cache.peek(key, now)

    async def _settle_part(self, part: Opened | MalformedBody, lane: Lane, terms: Terms) -> Outcome:
        if isinstance(part, MalformedBody):
            raise part
        return await self.settle(part, lane, terms)

    async def _fly(self, way: _Way, request: Request, lane: Lane, terms: Terms) -> Outcome:
        landed = await self._flights.run(way, lambda: self._work(way, request, lane, terms))
        if landed.joined and not lane.cache.allows(landed.value.decision, lane.identity):
            # It was begun before a purge, and this caller may have come after it.
            landed = await self._flights.run(way, lambda: self._work(way, request, lane, terms))
        outcome = landed.value
        if landed.joined and outcome.source is Source.MODEL:
            outcome = replace(outcome, source=Source.COALESCED)
        self.coalesced[lane.identity.tenant] += outcome.source is Source.COALESCED
        return outcome

    async def _work(self, way: _Way, request: Request, lane: Lane, terms: Terms) -> Outcome:
        epoch = lane.cache.epoch  # read before the work: a purge from now on must reach what comes of it
        if not way.look_up or not way.store:
            return await self._work_apart(way, request, lane, terms, epoch)
        stored = await self._stored(way, request, lane)
        if stored is not None:
            return stored
        return await self._take_turn(way, request, lane, terms, epoch)

    async def _take_turn(self, way: _Way, request: Request, lane: Lane, terms: Terms, epoch: int) -> Outcome:
        async with self._turns.turn(way.key) as turn:
            adopted = self._adopted(turn.answer, way, lane)
            if adopted is not None:
                return adopted
            # It may have landed between the lookup and the turn.
            outcome = await self._stored(way, request, lane) if self._is_shared else None
            if outcome is None:
                with self._admitted():  # who waits for another process takes no place in this one
                    outcome = await self._compute(way, request, lane, terms, epoch)
            turn.settle(sealed(outcome, lane.identity.tenant))
            return outcome

    async def _work_apart(self, way: _Way, request: Request, lane: Lane, terms: Terms, epoch: int) -> Outcome:
        """Compute for callers whom a shared decision does not serve, or who leave none behind."""
        if way.look_up:
            stored = await self._stored(way, request, lane)
            if stored is not None:
                return stored
        with self._admitted():
            return await self._compute(way, request, lane, terms, epoch)

    def _adopted(self, answer: bytes | None, way: _Way, lane: Lane) -> Outcome | None:
        """What another process settled, unless it began before a purge that this one knows."""
        outcome = unsealed(answer or b"", way.key, lane.identity.tenant)
        if outcome is None or not lane.cache.allows(outcome.decision, lane.identity):
            return None
        if outcome.stored:
            lane.cache.adopt(outcome.decision, lane.identity, self._clock())
        return outcome

    @contextmanager
    def _admitted(self) -> Iterator[None]:
        if self._computing >= self._admission.max_computing:
            raise Overloaded(f"{self._computing} decisions are being made", self._admission.retry_after_s)
        self._computing += 1
        try:
            yield
        finally:
            self._computing -= 1

    async def _stored(self, way: _Way, request: Request, lane: Lane) -> Outcome | None:
        decision = await lane.cache.get(way.key, lane.identity, self._clock(), request.questions)
        return None if decision is None else _replayed(decision)

    async def _compute(self, way: _Way, request: Request, lane: Lane, terms: Terms, epoch: int) -> Outcome:
        inferred = await infer(self._engine, way.key, request, lane.identity)
        now = self._clock()
        fresh = replace(inferred, stored_at=now, last_expiry=terms.evidence_valid_until, epoch=epoch)
        if not way.store:
            return Outcome(fresh, Source.MODEL, stored=False)
        added = await lane.cache.add(fresh, lane.identity, now)
        if added.won:
            return Outcome(added.decision, Source.MODEL, added.stored)
        if way.look_up:
            return _replayed(added.decision)
        # Asked for afresh: the caller gets what was computed, and the precedent stands.
        return Outcome(fresh, Source.MODEL, stored=False)


def _replayed(decision: Decision) -> Outcome:
    return Outcome(decision, Source.REPLAY, decision.is_stored)


def sealed(outcome: Outcome, tenant: str) -> bytes:
    """An outcome as it travels to those who wait in other processes; empty when it is too large for that."""
    value = envelope.encode(outcome.decision, tenant)
    return b"" if value is None else (b"+" if outcome.stored else b"-") + value


def unsealed(value: bytes, key: bytes, tenant: str) -> Outcome | None:
    """What travelled; None when it is not a decision about `key` of `tenant`."""
    found = envelope.decode(value[1:], key, tenant)
    return Outcome(found, Source.COALESCED, value[:1] == b"+") if isinstance(found, Decision) else None


def _outcome_or_error(settled: Outcome | BaseException) -> Outcome | PrecedentError:
    if isinstance(settled, Outcome | PrecedentError):
        return settled
    raise settled


def is_worth_another_try(error: Exception) -> bool:
    """Whether another caller of the same request may have more luck: not when nobody would be let in."""
    return isinstance(error, RetryLater) and not isinstance(error, Overloaded)


def _refuse_expired_evidence(terms: Terms, now: float) -> None:
    if terms.evidence_valid_until is not None and terms.evidence_valid_until <= now:
        raise EvidenceExpired(terms.evidence_valid_until, now)


def _is_picky(terms: Terms) -> bool:
    """Whether a decision in the store must be looked at before a flight is joined."""
    return not terms.no_cache and (terms.only_if_cached or terms.max_age_s is not None)


def _is_young(decision: Decision, terms: Terms, now: float) -> bool:
    return terms.max_age_s is None or now - decision.stored_at <= terms.max_age_s
