"""Exact bounds on an error rate from a sample of it."""

from scipy.special import betaincinv

from core.tables.spending import fewest_all_right


def upper_bound(errors: int, n: int, delta: float) -> float:
    """Bound an error rate from above, one-sided and exact.

    Args:
        errors: errors seen, 0 <= errors <= n.
        n: answers seen.
        delta: probability, over the draw of the answers, that the rate is larger; in (0, 1).

    Returns:
        A rate in [0, 1]; 1 where nothing was seen, or nothing was right.

    Reference: Clopper and Pearson (1934).
    """
    if n == 0 or errors >= n:
        return 1.0
    return float(betaincinv(errors + 1, n - errors, 1.0 - delta))


def fewest_with(errors: int, alpha: float, delta: float) -> int:
    """The fewest answers, `errors` of them wrong, that prove an error rate of at most `alpha`."""
    low, high = errors, max(1, fewest_all_right(alpha, delta))
    while upper_bound(errors, high, delta) > alpha:
        low, high = high, 2 * high
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if upper_bound(errors, middle, delta) <= alpha else (middle, high)
    return high
