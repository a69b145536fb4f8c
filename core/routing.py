"""Who answers: the store, or the engine. The whole policy, in the order in which it is asked.

    1. a decision in memory, found by the body itself     no parsing, no waiting
    2. a decision in memory, found by the request's key
    3. the flight for that key, if one is in the air
    4. a decision in the store
    5. the engine; what it says is stored, and the first decision stored is everybody's answer

Evidence is checked before the first step and after the last: what rests on expired evidence is not replayed,
not computed and not stored.
"""

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from functools import lru_cache

from core.cache.cache import DecisionCache
from core.cache.decision import Decision
from core.contract.answers import write_answers
from core.contract.request import Contract, Request, open_body, read
from core.contract.strict_json import looks_spaced
from core.contract.terms import PLAIN, Terms
from core.engines.base import Engine, Item, Reading
from core.errors import EngineFailed, EvidenceExpired, MalformedBody, NotCached, PrecedentError
from core.flights import SingleFlight
from core.identity import Identity, KeyOf, keyer

MAX_SPELLINGS = 100_000
MAX_SPELLED_BYTES = 4_096  # larger bodies are cheaper to read again than to remember
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


@dataclass(frozen=True, slots=True)
class Lane:
    """Requests of one identity: their key function is prepared once."""

    identity: Identity
    key_of: KeyOf


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
        fingerprint: the engine's, or the one that the operator pinned.
        engine: the model, in this process or behind a handle.
        cache: where decisions are kept.
        clock: Unix seconds.
        deadline_s: how long one computation may take.
    """

    def __init__(
        self,
        contract: Contract,
        fingerprint: str,
        engine: Engine,
        cache: DecisionCache,
        clock: Callable[[], float],
        deadline_s: float,
    ) -> None:
        self._contract = contract
        self._engine = engine
        self._cache = cache
        self._clock = clock
        self._flights: SingleFlight[_Way, Outcome] = SingleFlight(deadline_s)
        self._spellings: dict[bytes, bytes] = {}
        self.coalesced: Counter[str] = Counter()  # by tenant

        @lru_cache(MAX_LANES)
        def lane(identity: Identity) -> Lane:
            return Lane(identity, keyer(identity, fingerprint))

        self.lane = lane

    def replay(self, body: bytes, lane: Lane, now: float, terms: Terms = PLAIN) -> Decision | None:
        """The decision in memory for exactly this body, without parsing it.

        A body in compact form is what its key is made of, so its digest is the key. Another spelling of the
        same request is decoded once and then remembered with its key. Neither is validated: where there is a
        decision, there was a valid request.

        Raises:
            EvidenceExpired: the evidence is no longer valid.
        """
        if terms is not PLAIN:
            _refuse_expired_evidence(terms, now)
            if terms.no_cache:
                return None
        key = self._key_at_a_glance(body, lane)
        decision = None if key is None else self._cache.peek(key, now)
        return decision if decision is not None and _is_young(decision, terms, now) else None

    async def decide(self, body: bytes, lane: Lane, terms: Terms = PLAIN) -> Outcome:
        """Settle a request: replay its decision, or make it.

        Raises:
            CallerError: the body is not a valid request, its evidence has expired, or only a stored decision
                was wanted and there is none.
            RetryLater: no answer could be had; nothing was stored.
        """
        now = self._clock()
        _refuse_expired_evidence(terms, now)
        opened = open_body(body)
        key = lane.key_of(opened.compact)
        if opened.compact != body and len(body) <= MAX_SPELLED_BYTES:
            self._remember_spelling(lane.key_of(body), key)
        decision = None if terms.no_cache else self._cache.peek(key, now)
        if decision is not None and _is_young(decision, terms, now):
            return Outcome(decision, Source.REPLAY)  # it is there, so this body was a valid request before
        request = read(opened, self._contract)
        if decision is None and not terms.no_cache and _is_picky(terms):
            decision = await self._cache.get(key, lane.identity, now, request.questions)
            if decision is not None and _is_young(decision, terms, now):
                return Outcome(decision, Source.REPLAY)
        if terms.only_if_cached:
            raise NotCached
        return await self._fly(
            _Way(key, decision is None and not terms.no_cache, not terms.no_store), request, lane, terms
        )

    def forget_spellings(self) -> None:
        """Meet every spelling as if for the first time."""
        self._spellings.clear()

    async def drain(self) -> None:
        """Wait for every computation in progress."""
        await self._flights.drain()

    async def _fly(self, way: _Way, request: Request, lane: Lane, terms: Terms) -> Outcome:
        landed = await self._flights.run(way, lambda: self._settle(way, request, lane.identity, terms))
        if landed.joined and landed.value.source is Source.MODEL:
            self.coalesced[lane.identity.tenant] += 1
            return Outcome(landed.value.decision, Source.COALESCED, landed.value.stored)
        return landed.value

    async def _settle(self, way: _Way, request: Request, identity: Identity, terms: Terms) -> Outcome:
        epoch = self._cache.epoch  # before the work: a purge from now on must reach what comes of it
        if way.look_up:
            decision = await self._cache.get(way.key, identity, self._clock(), request.questions)
            if decision is not None:
                return Outcome(decision, Source.REPLAY)
        fresh = await self._compute(way.key, request, identity, terms, epoch)
        if not way.store:
            return Outcome(fresh, Source.MODEL, stored=False)
        added = await self._cache.add(fresh, identity, self._clock())
        if added.won:
            return Outcome(added.decision, Source.MODEL, added.stored)
        if way.look_up:
            return Outcome(added.decision, Source.REPLAY)
        # Asked for afresh: the caller gets what was computed, and the precedent stands.
        return Outcome(fresh, Source.MODEL, stored=False)

    async def _compute(
        self, key: bytes, request: Request, identity: Identity, terms: Terms, epoch: int
    ) -> Decision:
        items = [Item(request.state, question, identity.tenant) for question in request.questions.values()]
        readings = complete(await self._ask(items), len(items))
        answers, margins = write_answers(request.questions, [reading.probabilities for reading in readings])
        return Decision(
            key=key,
            model=self._engine.name,
            answers=answers,
            margins=margins,
            input_tokens=sum(reading.input_tokens for reading in readings),
            truncated=tuple(
                name for name, reading in zip(request.questions, readings, strict=True) if reading.truncated
            ),
            stored_at=self._clock(),
            last_expiry=terms.evidence_valid_until,
            epoch=epoch,
        )

    async def _ask(self, items: Sequence[Item]) -> list[Reading | Exception]:
        try:
            return await self._engine.answer(items)
        except PrecedentError:
            raise
        except Exception as error:
            raise EngineFailed(type(error).__name__) from error

    def _key_at_a_glance(self, body: bytes, lane: Lane) -> bytes | None:
        """The key of a body that was met before, or is in compact form; None when it is not even JSON."""
        is_short = len(body) <= MAX_SPELLED_BYTES
        if is_short or not looks_spaced(body):
            digest = lane.key_of(body)
            known = self._spellings.get(digest)
            if known is not None or not looks_spaced(body):
                return known or digest
        try:
            key = lane.key_of(open_body(body).compact)
        except MalformedBody:
            return None
        if is_short:
            self._remember_spelling(digest, key)
        return key

    def _remember_spelling(self, digest: bytes, key: bytes) -> None:
        if len(self._spellings) >= MAX_SPELLINGS:
            del self._spellings[next(iter(self._spellings))]
        self._spellings[digest] = key


def complete(readings: Sequence[Reading | Exception], expected: int) -> list[Reading]:
    """All readings of a request, or the error of the first that has none: half a decision is none.

    Raises:
        EngineFailed: an item failed, or there are more or fewer readings than items.
    """
    if len(readings) != expected:
        raise EngineFailed(f"{len(readings)} readings for {expected} questions")
    whole = []
    for reading in readings:
        if isinstance(reading, PrecedentError):
            raise reading
        if isinstance(reading, Exception):
            raise EngineFailed(type(reading).__name__) from reading
        whole.append(reading)
    return whole


def _refuse_expired_evidence(terms: Terms, now: float) -> None:
    if terms.evidence_valid_until is not None and terms.evidence_valid_until <= now:
        raise EvidenceExpired(terms.evidence_valid_until, now)


def _is_picky(terms: Terms) -> bool:
    """Whether a decision in the store must be looked at before a flight is joined."""
    return terms.only_if_cached or terms.max_age_s is not None


def _is_young(decision: Decision, terms: Terms, now: float) -> bool:
    return terms.max_age_s is None or now - decision.stored_at <= terms.max_age_s
