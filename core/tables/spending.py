"""How much of a task's `delta` each of its certifications may spend, and what the cheapest proof takes."""

import math


def share(delta: float, look: int, students: int) -> float:
    """The failure probability of one student's certificate.

    The k-th look at a task spends delta / (k (k + 1)); these sum to delta over all looks there can be.
    Students that are tried in one look share what it spends.

    Args:
        delta: of the task, in (0, 1).
        look: 1 for the task's first certification.
        students: how many are certified in this look.
    """
    return delta / (look * (look + 1)) / students


def fewest_all_right(alpha: float, delta: float) -> int:
    """The fewest answers, all of them right, that prove an error rate of at most `alpha`.

    The smallest n with (1 - alpha)^n <= delta.
    """
    n = math.ceil(math.log(delta) / math.log1p(-alpha))
    while n > 1 and (1.0 - alpha) ** (n - 1) <= delta:  # the logarithms may be off in the last bit
        n -= 1
    while (1.0 - alpha) ** n > delta:
        n += 1
    return n
