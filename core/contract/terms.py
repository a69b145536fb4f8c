"""What a caller says about one call, beside its body: revisions, deadlines, caching and thresholds.

Revisions make another request and belong to the identity. Everything else changes how this one call is
answered, and is never stored or keyed.
"""

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import datetime

from core.errors import InvalidHeader

EVIDENCE_REVISION = b"x-precedent-evidence-revision"
EVIDENCE_VALID_UNTIL = b"x-precedent-evidence-valid-until"
CONTRACT_REVISION = b"x-precedent-contract-revision"
NOUL_THRESHOLD = b"x-precedent-noul-threshold"
CACHE_CONTROL = b"cache-control"

MAX_REVISION_CHARS = 256
LATEST_S = 32_503_680_000.0  # the year 3000; what is later was counted in milliseconds
MAX_THRESHOLDS = 512


@dataclass(frozen=True, slots=True)
class Terms:
    """One call's terms.

    `no_cache`, `no_store`, `only_if_cached` and `max_age_s` are the request directives of RFC 9111, section
    5.2.1.
    """

    evidence: str | None = None
    contract: str | None = None
    evidence_valid_until: float | None = None  # Unix seconds
    no_cache: bool = False
    no_store: bool = False
    only_if_cached: bool = False
    max_age_s: float | None = None
    noul_thresholds: Mapping[str, float] = field(default_factory=dict)  # question id -> threshold in (0, 1)


PLAIN = Terms()
"""The terms of a call that says nothing."""

READ_HERE = frozenset(
    {EVIDENCE_REVISION, EVIDENCE_VALID_UNTIL, CONTRACT_REVISION, NOUL_THRESHOLD, CACHE_CONTROL}
)


def read_terms(headers: Iterable[tuple[bytes, bytes]]) -> Terms:
    """Read the terms from headers; their names are lower case.

    Raises:
        InvalidHeader: a header that does not say what it should, or stands twice.
    """
    found: dict[bytes, str] = {}
    for name, value in headers:
        if name in READ_HERE:
            text = _text(name, value)
            if name in found and name != CACHE_CONTROL:
                raise InvalidHeader(name.decode(), "stands more than once; send it once")
            found[name] = f"{found[name]}, {text}" if name in found else text
    if not found:
        return PLAIN
    directives = _directives(found.get(CACHE_CONTROL, ""))
    return Terms(
        evidence=_revision(EVIDENCE_REVISION, found),
        contract=_revision(CONTRACT_REVISION, found),
        evidence_valid_until=_instant(found.get(EVIDENCE_VALID_UNTIL)),
        no_cache="no-cache" in directives,
        no_store="no-store" in directives,
        only_if_cached="only-if-cached" in directives,
        max_age_s=_seconds(directives.get("max-age")),
        noul_thresholds=_thresholds(found.get(NOUL_THRESHOLD, "")),
    )


def _text(name: bytes, value: bytes) -> str:
    try:
        return value.decode().strip()
    except UnicodeDecodeError:
        raise InvalidHeader(name.decode(), "is not UTF-8") from None


def _revision(name: bytes, found: Mapping[bytes, str]) -> str | None:
    revision = found.get(name)
    if revision is None:
        return None
    if not 1 <= len(revision) <= MAX_REVISION_CHARS:
        raise InvalidHeader(
            name.decode(), f"has {len(revision)} characters; send 1 to {MAX_REVISION_CHARS}, or leave it out"
        )
    return revision


def _instant(text: str | None) -> float | None:
    if text is None:
        return None
    try:
        instant = float(text) if _is_number(text) else _rfc3339(text)
    except (ValueError, OverflowError):
        instant = math.nan
    if not instant <= LATEST_S:  # nor NaN
        raise InvalidHeader(
            EVIDENCE_VALID_UNTIL.decode(),
            "is neither Unix seconds (not milliseconds) nor an RFC 3339 time with its offset, "
            "such as 2030-01-31T12:00:00Z",
        )
    return instant


def _is_number(text: str) -> bool:
    return text.isascii() and text.replace(".", "", 1).isdigit()


def _rfc3339(text: str) -> float:
    instant = datetime.fromisoformat(text.replace("z", "Z"))
    if instant.tzinfo is None:
        raise ValueError("a time without its offset means another instant on another machine")
    return instant.timestamp()


def _directives(text: str) -> dict[str, str]:
    pairs = (directive.partition("=") for directive in text.split(","))
    return {name.strip().lower(): value.strip().strip('"') for name, _, value in pairs}


def _seconds(text: str | None) -> float | None:
    if text is None:
        return None
    if not (text.isascii() and text.isdigit()):
        raise InvalidHeader(CACHE_CONTROL.decode(), "max-age must be a whole number of seconds")
    # RFC 9111, section 1.2.2: a number too large to hold is as good as the largest.
    return float(min(int(text[:12]), 2**31))


def _thresholds(text: str) -> dict[str, float]:
    """Read `id=0.75,other=0.6`; an id may hold `=`, and a comma in an id is written `%2C`."""
    thresholds: dict[str, float] = {}
    for entry in filter(None, (part.strip() for part in text.split(","))):
        name, equals, number = entry.rpartition("=")
        threshold = _probability(number)
        if not equals or not name or threshold is None or len(thresholds) >= MAX_THRESHOLDS:
            raise InvalidHeader(
                NOUL_THRESHOLD.decode(), "must read id=0.75,other=0.6 with thresholds between 0 and 1"
            )
        thresholds[name.strip().replace("%2C", ",").replace("%25", "%")] = threshold
    return thresholds


def _probability(text: str) -> float | None:
    try:
        value = float(text)
    except ValueError:
        return None
    return value if 0.0 < value < 1.0 else None
