"""Whether a table still deserves what its certificate says, told from what is seen while it serves.

Two watches, each a value that observations turn into the next one:

`Bets` plays against "at most alpha of the certified answers are wrong". Its wealth can hardly grow while that
is true, however long it is watched and whenever one looks (Ville 1939); so wealth of 1 / delta is an alarm.
Each bet assumes an error rate above alpha (Waudby-Smith and Ramdas 2024, Estimating means of bounded random
variables by betting), and money is laid on it a little at each check, so that what a table did well for years
does not hide for as long what it does now (Shin, Ramdas and Rinaldo 2024, E-detectors).

`Drift` is Page's cumulative sum (1954) over how many texts a table is unsure of. While that is the normal
share or less, it raises an alarm within n texts with probability at most n exp(-limit) (Lorden 1971).
"""

import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import cache
from typing import Final

ALARM_DELTA: Final = 0.01  # probability of ever suspecting a table whose error rate is within its certificate
BETS: Final = 6  # error rates that are bet on
HIGHEST_RATE: Final = 0.9

RISE: Final = 1.5  # the share to find out, in normal shares
DRIFT_LIMIT: Final = math.log(1e7)  # at most one false alarm in a hundred for each 100,000 texts


@dataclass(frozen=True, slots=True)
class Bets:
    """What became of one unit of money that was laid on errors."""

    checks: int = 0
    errors: int = 0
    laid: tuple[float, ...] = (0.0,) * BETS  # worth of what was laid on each bet so far

    def after(self, wrong: Iterable[bool], alpha: float) -> "Bets":
        """The bets after more checks.

        Args:
            wrong: of each checked answer. Which answers are checked may depend on anything but their own
                correctness.
            alpha: error rate that the certificate allows, in (0, 1).
        """
        checks, errors, laid = self.checks, self.errors, list(self.laid)
        if_wrong = [rate / alpha for rate in assumed_rates(alpha)]
        if_right = [(1.0 - rate) / (1.0 - alpha) for rate in assumed_rates(alpha)]
        for one in wrong:
            stake = (_kept(checks) - _kept(checks + 1)) / BETS
            for bet, odds in enumerate(if_wrong if one else if_right):
                laid[bet] = min(1e300, (laid[bet] + stake) * odds)
            checks += 1
            errors += one
        return Bets(checks, errors, tuple(laid))

    @property
    def wealth(self) -> float:
        """What the unit is worth now; 1 at the start."""
        return sum(self.laid) + _kept(self.checks)

    @property
    def is_alarm(self) -> bool:
        """Whether the error rate is above alpha; wrongly so with probability ALARM_DELTA at most, ever."""
        return self.wealth >= 1.0 / ALARM_DELTA


@cache
def assumed_rates(alpha: float) -> tuple[float, ...]:
    """The error rates that are bet on: from half as much again as alpha upwards, equally far in log odds."""
    lowest = min(1.5 * alpha, (1.0 + 2.0 * alpha) / 3.0)  # of a large alpha, half as much again is no rate
    low, high = _log_odds(lowest), _log_odds(max(HIGHEST_RATE, (1.0 + alpha) / 2.0))
    return tuple(_share_of(low + (high - low) * bet / (BETS - 1)) for bet in range(BETS))


def error_interval(errors: int, checks: int, delta: float = 0.05) -> tuple[float, float]:
    """An interval that holds the error rate at every check of a table's life, with probability 1 - delta.

    The rates against which a bet on all rates alike, each with its odds, has not won 1 / delta.

    Reference: Robbins (1970), Statistical methods related to the law of the iterated logarithm.
    """
    if checks == 0:
        return 0.0, 1.0
    right = checks - errors
    won = math.lgamma(errors + 1) + math.lgamma(right + 1) - math.lgamma(checks + 2)

    def is_out(rate: float) -> bool:
        told = (errors * math.log(rate) if errors else 0.0) + (right * math.log1p(-rate) if right else 0.0)
        return won - told >= -math.log(delta)

    seen = errors / checks
    low = 0.0 if errors == 0 else _edge(is_out, 0.0, seen)
    high = 1.0 if right == 0 else _edge(is_out, 1.0, seen)
    return low, high


@dataclass(frozen=True, slots=True)
class Tail:
    """Which confidences are low, and how often they are while the texts are those of the certification."""

    below: float  # confidence
    normal: float  # share of texts at most, in (0, 1)

    def holds(self, confidence: float) -> bool:
        """Whether a confidence is low."""
        return math.isnan(confidence) or confidence < self.below


@dataclass(frozen=True, slots=True)
class Drift:
    """How much speaks for texts of another kind."""

    texts: int = 0
    low: int = 0  # of them in the tail
    total: float = 0.0  # logarithm of the largest likelihood ratio over all times at which it may have begun

    def after(self, low: Iterable[bool], tail: Tail) -> "Drift":
        """The sum after more texts.

        Args:
            low: whether the table's confidence in each was in the tail.
            tail: of the table.
        """
        texts, count, total = self.texts, self.low, self.total
        bad = RISE * tail.normal
        if_low, if_not = math.log(bad / tail.normal), math.log((1.0 - bad) / (1.0 - tail.normal))
        for one in low:
            total = max(0.0, total + (if_low if one else if_not))
            texts += 1
            count += one
        return Drift(texts, count, total)

    @property
    def is_alarm(self) -> bool:
        """Whether the texts are of another kind than those of the certification."""
        return self.total >= DRIFT_LIMIT


def _kept(checks: int) -> float:
    """What of the unit is not laid yet: it never ends, and most is laid early."""
    return 1.0 / (1.0 + math.log1p(checks))


def _log_odds(share: float) -> float:
    return math.log(share / (1.0 - share))


def _share_of(log_odds: float) -> float:
    return 1.0 / (1.0 + math.exp(-log_odds))


def _edge(is_out: Callable[[float], bool], out: float, inside: float) -> float:
    for _ in range(60):
        middle = (out + inside) / 2
        if is_out(middle):
            out = middle
        else:
            inside = middle
    return out
