"""The low end of a table's confidences, for the watch on what it is asked. Not for a process that serves."""

import math
from collections.abc import Iterable
from typing import Final

from core.tables.bounds import upper_bound
from core.tables.watching import RISE, Tail

SHARE: Final = 0.2  # of the certification inputs, those the table was least sure of
DELTA: Final = 0.01  # probability that more than the normal share of such texts is as unsure
HIGHEST: Final = 0.95  # share that a risen tail may have, to be told from all


def tail_of(confidences: Iterable[float]) -> Tail | None:
    """The tail of a table's confidences in its certification inputs.

    The bound on its share is distribution-free: a text is below the k-th lowest of n with a probability that
    is Beta(k, n - k + 1), or lower where confidences are equal.

    Args:
        confidences: of distinct inputs that nobody fitted; NaN, the lowest, where the table may not answer.

    Returns:
        None where too few are known, or too many are equal, to tell a tail from the rest.

    Reference: Wilks (1941), Determination of sample sizes for setting tolerance limits.
    """
    known = sorted(-1.0 if math.isnan(one) else one for one in confidences)
    start = math.floor(SHARE * len(known))
    place = next((at for at in range(start, len(known)) if known[at] > known[0]), None)
    if start == 0 or place is None:
        return None
    normal = upper_bound(place, len(known), DELTA)
    return Tail(known[place], normal) if RISE * normal < HIGHEST else None
