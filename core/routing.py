"""Who answers: the store, a table, or the engine. The whole policy, in the order in which it is asked.

    1. a decision in memory, found by the body itself     no parsing, no waiting
    2. a decision in memory, found by the request's key
    3. the flight for that key, if one is in the air
    4. a static table of its registered task, where the certificate covers the answer
    5. a decision in the store
    6. another Router's computation of that key, if one is under way
    7. a table that needs a sentence vector, and the engine for what no table may answer, and for the share
       of requests that is drawn to keep an eye on the tables

What tables and engine say is stored, and the first decision stored is everybody's answer. A table's answer is
offered to the store before it is given, which is the lookup as well.

Evidence is checked before the first step and after the last: what rests on expired evidence is not replayed,
not computed and not stored. A busy engine sheds new computations, and nothing that the first five steps can
answer.
"""

import asyncio
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import lru_cache

from core.cache.decision import Decision
from core.cache.modes import CacheView
from core.coalescing.client import Alone, Turns
from core.consulting import EncodeTexts, Heard, Settled, Vector, ask_encoded, ask_static, is_complete
from core.contract.batch import open_batch
from core.contract.request import Contract, Opened, Request, open_body, read
from core.contract.terms import PLAIN, Terms
from core.engines.base import Engine, Reading
from core.errors import (
    EngineUnavailable,
    EvidenceExpired,
    MalformedBody,
    NotCached,
    Overloaded,
    PrecedentError,
    RetryLater,
)
from core.flights import SingleFlight
from core.identity import Identity, KeyOf, keyer
from core.inference import Inferred, infer, tabled
from core.outcome import Outcome, Source, is_tabled, replayed, sealed, unsealed
from core.spellings import Spellings
from core.tasks.registry import Registry, TenantTasks
from core.tasks.selection import Selection, select

MAX_LANES = 10_000


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


@dataclass(frozen=True, slots=True)
class _Asked:
    """A request on its way to its first decision."""

    request: Request
    selection: Selection
    lane: Lane
    terms: Terms


@dataclass(slots=True)
class _Known:
    """Keys of bodies seen while a tenant's tasks were these: other tasks may mean other keys."""

    tasks: TenantTasks
    keys: Spellings


async def no_vectors(texts: Sequence[str]) -> Sequence[Vector]:
    """Make no sentence vectors: nothing that could is deployed."""
    raise EngineUnavailable("no encoder is deployed")


@dataclass(frozen=True, slots=True)
class Tables:
    """The registered tasks, and what asking their tables takes."""

    registry: Registry
    encode: EncodeTexts = no_vectors  # makes the sentence vectors that some tables need
    answer_first: bool = (
        False  # give a table's answer before the store has said whether there is an earlier one
    )
    watch: Callable[[Settled], None] | None = None  # told of every first decision; must not take long


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
        tables: the registered tasks and what their tables need; none when left out.
    """

    def __init__(  # noqa: PLR0913  each is a part of its own
        self,
        contract: Contract,
        engine: Engine,
        cache: CacheView,
        clock: Callable[[], float],
        turns: Turns | None = None,
        admission: Admission | None = None,
        tenant_caches: Mapping[str, CacheView] | None = None,
        *,
        tables: Tables | None = None,
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
        self._tables = tables or Tables(Registry())
        self._known: dict[str, _Known] = {}  # by tenant
        self._settling: set[asyncio.Task[None]] = set()
        self._computing = 0
        self.coalesced: Counter[str] = Counter()  # by tenant

        @lru_cache(MAX_LANES)
        def lane(identity: Identity) -> Lane:
            seen = (tenant_caches or {}).get(identity.tenant, cache)
            return Lane(identity, keyer(identity, engine.fingerprint), seen)

        self.lane = lane

        @lru_cache(MAX_LANES)
        def key_of_task(identity: Identity, task: str) -> KeyOf:
            return keyer(identity, engine.fingerprint, task)

        self._key_of_task = key_of_task

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
        if decision is None or self._kept_warning(decision, lane) is not None:
            return None  # who is to be warned is warned every time
        return decision if terms is PLAIN or _is_young(decision, terms, now) else None

    async def decide(self, body: bytes, lane: Lane, terms: Terms = PLAIN) -> Outcome:
        """Settle a request: replay its decision, or make it.

        Raises:
            CallerError: the body is not a valid request, its evidence has expired, or only a stored decision
                was wanted and there is none.
            RetryLater: no answer could be had; nothing was stored.
        """
        _refuse_expired_evidence(terms, self._clock())
        opened = open_body(body)
        tasks = self._tables.registry.of(lane.identity.tenant)
        opened, selection = select(opened, tasks)
        key = self._key(opened, selection, lane)
        if tasks is not None:
            if selection.warning is None:  # who is to be warned is warned every time
                self._known_to(lane, tasks).remember(lane.key_of(body), key)
        else:
            self._spellings.learn(body, opened.compact, key, lane.key_of)
        return await self._settle(key, opened, selection, lane, terms)

    async def settle(self, opened: Opened, lane: Lane, terms: Terms = PLAIN) -> Outcome:
        """Do what `decide` does, for a body that was decoded before."""
        opened, selection = select(opened, self._tables.registry.of(lane.identity.tenant))
        return await self._settle(self._key(opened, selection, lane), opened, selection, lane, terms)

    def _key(self, opened: Opened, selection: Selection, lane: Lane) -> bytes:
        key_of = lane.key_of if selection.task is None else self._key_of_task(lane.identity, selection.task)
        return key_of(opened.compact)

    async def _settle(
        self, key: bytes, opened: Opened, selection: Selection, lane: Lane, terms: Terms
    ) -> Outcome:
        outcome = await self._settle_unwarned(key, opened, selection, lane, terms)
        warning = selection.warning or self._kept_warning(outcome.decision, lane)
        return outcome if warning is None else replace(outcome, warning=warning)

    async def _settle_unwarned(
        self, key: bytes, opened: Opened, selection: Selection, lane: Lane, terms: Terms
    ) -> Outcome:
        now = self._clock()
        _refuse_expired_evidence(terms, now)
        decision = None if terms.no_cache else lane.cache.peek(key, now)
        if decision is not None and _is_young(decision, terms, now):
            return replayed(decision)
        request = read(opened, self._contract)
        if decision is None and _is_picky(terms):
            decision = await lane.cache.get(key, lane.identity, now, request.questions)
            if decision is not None and _is_young(decision, terms, now):
                return replayed(decision)
        if terms.only_if_cached:
            raise NotCached
        way = _Way(key, decision is None and not terms.no_cache, not terms.no_store)
        return await self._fly(way, _Asked(request, selection, lane, terms))

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
        self._known.clear()

    async def drain(self) -> None:
        """Wait for every computation in progress."""
        await self._flights.drain()
        await asyncio.gather(*self._settling)

    def _known_to(self, lane: Lane, tasks: TenantTasks) -> Spellings:
        known = self._known.get(lane.identity.tenant)
        if known is None or known.tasks is not tasks:
            known = self._known[lane.identity.tenant] = _Known(tasks, Spellings())
        return known.keys

    def _peek(self, body: bytes, lane: Lane, now: float) -> Decision | None:
        digest = lane.key_of(body)
        tasks = self._tables.registry.of(lane.identity.tenant)
        if tasks is not None:
            remembered = self._known_to(lane, tasks).remembered(digest)
            return None if remembered is None else lane.cache.peek(remembered, now)
        decision = lane.cache.peek(digest, now)
        if decision is not None:
            return decision
        key = self._spellings.key_of(body, digest, lane.key_of)
        return None if key is None else lane.cache.peek(key, now)

    async def _settle_part(self, part: Opened | MalformedBody, lane: Lane, terms: Terms) -> Outcome:
        if isinstance(part, MalformedBody):
            raise part
        return await self.settle(part, lane, terms)

    async def _fly(self, way: _Way, asked: _Asked) -> Outcome:
        lane = asked.lane
        landed = await self._flights.run(way, lambda: self._work(way, asked))
        if landed.joined and not lane.cache.allows(landed.value.decision, lane.identity):
            # It was begun before a purge, and this caller may have come after it.
            landed = await self._flights.run(way, lambda: self._work(way, asked))
        outcome = landed.value
        if landed.joined and outcome.source in (Source.MODEL, Source.TABLE):
            outcome = replace(outcome, source=Source.COALESCED)
        self.coalesced[lane.identity.tenant] += outcome.source is Source.COALESCED
        return outcome

    async def _work(self, way: _Way, asked: _Asked) -> Outcome:
        epoch = (
            asked.lane.cache.epoch
        )  # read before the work: a purge from now on must reach what comes of it
        request = asked.request
        heard: Mapping[str, Heard] = {}
        if asked.selection.parts:
            heard = ask_static(asked.selection, way.key, request.state, request.questions)
        if heard and is_complete(heard, request.questions):
            fresh = tabled(self._engine.name, way.key, request, heard)
            return await self._keep_tabled(way, fresh, asked, epoch, heard)
        if not way.look_up or not way.store:
            return await self._work_apart(way, asked, heard, epoch)
        stored = await self._stored(way, asked)
        if stored is not None:
            return stored
        return await self._take_turn(way, asked, heard, epoch)

    async def _keep_tabled(
        self, way: _Way, made: Decision, asked: _Asked, epoch: int, heard: Mapping[str, Heard]
    ) -> Outcome:
        """Offer a table's decision to the store, which is the lookup as well."""
        if not way.look_up or not way.store:
            return await self._keep(way, Inferred(made, {}), asked, epoch, heard)
        fresh = self._stamped(made, asked, epoch)
        cache, identity = asked.lane.cache, asked.lane.identity
        if self._tables.answer_first:
            self._settle_later(fresh, asked.lane)
            self._tell(way, asked, heard, {})
            return Outcome(fresh, Source.TABLE, stored=False)
        added = await cache.add_first(fresh, identity, fresh.stored_at)
        if added.won:
            self._tell(way, asked, heard, {})
            return Outcome(added.decision, Source.TABLE, added.stored)
        return replayed(added.decision)

    def _settle_later(self, fresh: Decision, lane: Lane) -> None:
        async def settle() -> None:
            await lane.cache.add_first(fresh, lane.identity, fresh.stored_at)

        task = asyncio.create_task(settle())
        self._settling.add(task)
        task.add_done_callback(self._settling.discard)

    async def _take_turn(self, way: _Way, asked: _Asked, heard: Mapping[str, Heard], epoch: int) -> Outcome:
        async with self._turns.turn(way.key) as turn:
            adopted = self._adopted(turn.answer, way, asked.lane)
            if adopted is not None:
                return adopted
            # It may have landed between the lookup and the turn.
            outcome = await self._stored(way, asked) if self._is_shared else None
            if outcome is None:
                with self._admitted():  # who waits for another process takes no place in this one
                    outcome = await self._compute(way, asked, heard, epoch)
            turn.settle(sealed(outcome, asked.lane.identity.tenant))
            return outcome

    async def _work_apart(self, way: _Way, asked: _Asked, heard: Mapping[str, Heard], epoch: int) -> Outcome:
        """Compute for callers whom a shared decision does not serve, or who leave none behind."""
        if way.look_up:
            stored = await self._stored(way, asked)
            if stored is not None:
                return stored
        with self._admitted():
            return await self._compute(way, asked, heard, epoch)

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

    async def _stored(self, way: _Way, asked: _Asked) -> Outcome | None:
        lane = asked.lane
        decision = await lane.cache.get(way.key, lane.identity, self._clock(), asked.request.questions)
        return None if decision is None else replayed(decision)

    async def _compute(self, way: _Way, asked: _Asked, heard: Mapping[str, Heard], epoch: int) -> Outcome:
        request, selection = asked.request, asked.selection
        if len(heard) < len(selection.parts):
            encoded = await ask_encoded(
                selection, way.key, request.state, request.questions, self._tables.encode
            )
            heard = {**heard, **encoded}
        inferred = await infer(self._engine, way.key, request, asked.lane.identity, heard)
        return await self._keep(way, inferred, asked, epoch, heard)

    async def _keep(
        self, way: _Way, made: Inferred, asked: _Asked, epoch: int, heard: Mapping[str, Heard]
    ) -> Outcome:
        fresh = self._stamped(made.decision, asked, epoch)
        source = Source.TABLE if is_tabled(fresh) else Source.MODEL
        if not way.store:
            return Outcome(fresh, source, stored=False)
        added = await asked.lane.cache.add(fresh, asked.lane.identity, fresh.stored_at)
        if added.won:
            self._tell(way, asked, heard, made.readings)
            return Outcome(added.decision, source, added.stored)
        if way.look_up:
            return replayed(added.decision)
        # Asked for afresh: the caller gets what was computed, and the precedent stands.
        return Outcome(fresh, source, stored=False)

    def _kept_warning(self, decision: Decision, lane: Lane) -> str | None:
        """What a caller must know of a decision by a version that was withdrawn."""
        if not decision.table_versions:
            return None
        tasks = self._tables.registry.of(lane.identity.tenant)
        if tasks is None or not tasks.kept:
            return None
        return next((tasks.kept[one] for one in decision.table_versions if one in tasks.kept), None)

    def _tell(
        self, way: _Way, asked: _Asked, heard: Mapping[str, Heard], readings: Mapping[str, Reading]
    ) -> None:
        if heard and self._tables.watch is not None:
            tenant = asked.lane.identity.tenant
            request = asked.request
            self._tables.watch(Settled(way.key, tenant, request.state, request.questions, heard, readings))

    def _stamped(self, made: Decision, asked: _Asked, epoch: int) -> Decision:
        deadline = asked.terms.evidence_valid_until
        return replace(made, stored_at=self._clock(), last_expiry=deadline, epoch=epoch)


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
