"""How long a decision is kept: a number, rules, or a function of your own.

A time to live is a number of seconds, `None` for never, or 0 for "do not keep". A decision expires at the
earliest of its time to live, the deadline of its evidence and its maximum age, and no renewal passes the last
two.
"""

import importlib
import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Final, TypeGuard

from core.cache.decision import Decision
from core.errors import SettingsError

MAX_TTL_S: Final = 100 * 365.25 * 86_400  # longer ones are shortened to this, so that no date overflows
MAX_RENEWALS: Final = 16  # per time to live
RESOLUTION_S: Final = 0.001  # expiries are whole milliseconds; a shorter time to live lasts one

TtlFunction = Callable[[Decision], float | None]


class NotKept(StrEnum):
    """Why a decision is not stored."""

    TTL_ZERO = "ttl_zero"  # its time to live is 0
    EXPIRED = "expired"  # its evidence expired while it was made
    FUNCTION_FAILED = "function_failed"  # the operator's function raised, or returned no time to live


@dataclass(frozen=True, slots=True)
class Rule:
    """A time to live for some questions.

    Raises:
        SettingsError: an impossible time to live, or a margin outside [0, 1].
    """

    ttl_s: float | None
    question: str | None = None  # the id it is for; None for every question
    margin_below: float | None = None  # only answers with a smaller margin
    margin_from: float | None = None  # only answers with this margin or a larger one

    def __post_init__(self) -> None:
        object.__setattr__(self, "ttl_s", ttl("rules.ttl_s", self.ttl_s))
        for name in ("margin_below", "margin_from"):
            value = getattr(self, name)
            if value is not None and (not _is_number(value) or not 0.0 <= value <= 1.0):
                raise SettingsError(f"rules.{name}", f"is {value!r}; a margin lies between 0 and 1")

    def covers(self, question: str, margin: float) -> bool:
        """Whether the rule is for an answer to `question` with this margin."""
        return (
            self.question in (None, question)
            and (self.margin_below is None or margin < self.margin_below)
            and (self.margin_from is None or margin >= self.margin_from)
        )


@dataclass(frozen=True, slots=True)
class Retention:
    """How long decisions are kept.

    For each question the first rule that covers its answer counts, else `ttl_s`; a decision is stored whole,
    so it lives as long as its shortest-lived answer. With a `function`, that alone decides.

    Raises:
        SettingsError: a time that is negative, not finite, or no number; a function beside rules.
    """

    ttl_s: float | None = None
    max_age_s: float | None = None  # an upper limit since the decision was made, renewals included
    renew_on_hit: bool = False  # a replay extends the expiry by the time to live
    rules: tuple[Rule, ...] = ()
    function: TtlFunction | None = None

    def __post_init__(self) -> None:
        object.__setattr__(self, "ttl_s", ttl("ttl_s", self.ttl_s))
        object.__setattr__(self, "max_age_s", ttl("max_age_s", self.max_age_s))
        if self.max_age_s == 0.0:
            raise SettingsError(
                "max_age_s", "is 0; leave it out for no limit, or set ttl_s to 0 to keep nothing"
            )
        if self.function is not None and self.rules:
            raise SettingsError(
                "rules", "are set beside a function; the function alone decides, drop one of them"
            )

    def stamp(self, decision: Decision, now: float) -> Decision | NotKept:
        """Give a fresh decision its times, or say why it is not kept.

        `decision.last_expiry` is the deadline of its evidence, None where it has none.
        """
        lifetime = self._lifetime(decision)
        if isinstance(lifetime, NotKept):
            return lifetime
        if lifetime == 0.0:
            return NotKept.TTL_ZERO
        deadline = decision.last_expiry
        if deadline is not None:
            if not deadline > now:  # a deadline that is NaN ends here too
                return NotKept.EXPIRED
            deadline = math.floor(min(deadline, now + MAX_TTL_S) * 1000) / 1000
        last = _earliest(deadline, _after(now, self.max_age_s))
        expires_at = _earliest(_after(now, lifetime), last)
        if expires_at is not None and expires_at <= now:
            return NotKept.EXPIRED
        return replace(decision, stored_at=_whole(now), expires_at=expires_at, last_expiry=last)

    def renew_at(self, decision: Decision) -> float:
        """The instant from which a replay renews the decision; inf when none does.

        A renewal waits for a sixteenth of the time to live, so that a popular decision is written at most
        `MAX_RENEWALS` times in each.
        """
        if not self.renew_on_hit or decision.expires_at is None:
            return math.inf
        lifetime = self._lifetime(decision)
        if not isinstance(lifetime, float) or lifetime == 0.0:
            return math.inf
        last = math.inf if decision.last_expiry is None else decision.last_expiry
        if last <= decision.expires_at:
            return math.inf
        return decision.expires_at - lifetime + min(lifetime / MAX_RENEWALS, last - decision.expires_at)

    def renew(self, decision: Decision, now: float) -> Decision | None:
        """The decision with a later expiry, or None when it is not due or may live no longer."""
        lifetime = self._lifetime(decision)
        if now < self.renew_at(decision) or not isinstance(lifetime, float):
            return None
        return replace(decision, expires_at=_earliest(_after(now, lifetime), decision.last_expiry))

    def _lifetime(self, decision: Decision) -> float | NotKept | None:
        if self.function is not None:
            try:
                return ttl("function", self.function(decision))
            except Exception:
                return NotKept.FUNCTION_FAILED
        if not self.rules:
            return self.ttl_s
        shortest: float | None = None
        for question, margin in decision.margins.items():
            rule = next((rule for rule in self.rules if rule.covers(question, margin)), None)
            shortest = _earliest(shortest, self.ttl_s if rule is None else rule.ttl_s)
        return shortest


def ttl(setting: str, value: object) -> float | None:
    """Check a time to live, in seconds; None is never, 0 is "do not keep".

    Raises:
        SettingsError: negative, not finite, or neither a number nor None. True is not a number here.
    """
    if value is None:
        return None
    if not _is_number(value):
        raise SettingsError(setting, f"is {value!r}; give seconds as a number, or null for never")
    if not 0 <= value < math.inf:  # nor NaN
        raise SettingsError(setting, f"is {value!r}; give 0 or more seconds, or null for never")
    seconds = float(min(value, MAX_TTL_S))
    return seconds if seconds == 0.0 else max(RESOLUTION_S, _whole(seconds))


def load_function(path: str) -> TtlFunction:
    """Import a function from the decision to its time to live, named as `package.module:function`.

    Raises:
        SettingsError: there is no such module or function.
    """
    module_name, _, name = path.partition(":")
    try:
        function = getattr(importlib.import_module(module_name), name)
    except (ImportError, AttributeError, ValueError) as error:
        raise SettingsError(
            "function", f"{path} cannot be imported ({error}); use package.module:name"
        ) from error
    if not callable(function):
        raise SettingsError("function", f"{path} is {type(function).__name__} and not a function")
    loaded: TtlFunction = function
    return loaded


def _is_number(value: object) -> TypeGuard[int | float]:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _whole(seconds: float) -> float:
    return round(seconds * 1000) / 1000


def _after(now: float, seconds: float | None) -> float | None:
    return None if seconds is None else _whole(now + seconds)


def _earliest(one: float | None, other: float | None) -> float | None:
    if one is None or other is None:
        return other if one is None else one
    return min(one, other)
