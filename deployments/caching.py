"""What a response says about caching, in HTTP's words: `Age` (RFC 9111), `Cache-Status` (RFC 9211)."""

from core.cache.decision import Decision
from core.contract.terms import Terms
from core.outcome import Outcome, Source
from deployments.http_errors import Headers

CACHE_NAME = b"precedent"
WARNING = b"x-precedent-warning"


def replay_headers(decision: Decision, now: float) -> Headers:
    """The headers of a replay."""
    status = CACHE_NAME + b"; hit"
    if decision.expires_at is not None:
        status += b"; ttl=%d" % (decision.expires_at - now)
    return [(b"age", b"%d" % max(0.0, now - decision.stored_at)), (b"cache-status", status)]


def outcome_headers(outcome: Outcome, terms: Terms, now: float) -> Headers:
    """The headers of an answer that was waited for."""
    headers = _status_headers(outcome, terms, now)
    if outcome.warning is not None:
        headers.append((WARNING, outcome.warning.encode()))
    return headers


def _status_headers(outcome: Outcome, terms: Terms, now: float) -> Headers:
    if outcome.source is Source.REPLAY:
        return replay_headers(outcome.decision, now)
    status = CACHE_NAME + (b"; fwd=request" if terms.no_cache else b"; fwd=miss")
    if outcome.stored:
        status += b"; stored"
    if outcome.source is Source.COALESCED:
        status += b"; collapsed"
    return [(b"cache-status", status)]
