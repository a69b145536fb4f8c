"""Minimising a smooth convex function of many numbers in single precision."""

from collections import deque
from collections.abc import Callable
from typing import Final

import numpy as np
import numpy.typing as npt

Point = npt.NDArray[np.float32]
Loss = Callable[[Point], tuple[float, Point]]
Step = tuple[Point, Point, float]

KEPT: Final = 8  # steps from which the curvature is guessed
ARMIJO: Final = 1e-4
HALVINGS: Final = 20


def minimise(loss: Loss, start: Point, iterations: int, tolerance: float) -> Point:
    """Walk downhill until one step gains less than `tolerance` of the loss, or for `iterations` steps.

    Limited-memory BFGS with a halving line search. That of SciPy works in double precision and takes several
    times as long over the million weights of a table as the loss does.

    Args:
        loss: its value and slope at a point, shape (n,).
        start: where to begin, shape (n,).
        iterations: steps at most.
        tolerance: relative gain that is worth a step.

    Reference: Nocedal and Wright (2006), Numerical Optimization, algorithms 7.4 and 3.1.
    """
    steps: deque[Step] = deque(maxlen=KEPT)
    point, (value, slope) = start, loss(start)
    for _ in range(iterations):
        direction = _direction(slope, steps)
        descent = float(direction @ slope)
        if descent >= 0:
            break
        reach = 1.0
        for _ in range(HALVINGS):
            there = point + np.float32(reach) * direction
            value_there, slope_there = loss(there)
            if value_there <= value + ARMIJO * reach * descent:
                break
            reach /= 2
        else:
            break
        moved, bent = there - point, slope_there - slope
        curvature = float(moved @ bent)
        if curvature > 0:
            steps.append((moved, bent, curvature))
        gain = value - value_there
        point, value, slope = there, value_there, slope_there
        if gain <= tolerance * abs(value):
            break
    return point


def _direction(slope: Point, steps: deque[Step]) -> Point:
    """Downhill, scaled by the curvature met on the last steps."""
    if not steps:
        return -slope / max(1.0, float(np.sqrt(slope @ slope)))
    direction = -slope
    shares = []
    for moved, bent, curvature in reversed(steps):
        share = np.float32(float(moved @ direction) / curvature)
        direction -= share * bent
        shares.append(share)
    _, bent, curvature = steps[-1]
    direction *= np.float32(curvature / float(bent @ bent))
    for (moved, bent, curvature), share in zip(steps, reversed(shares), strict=True):
        direction += (share - np.float32(float(bent @ direction) / curvature)) * moved
    return direction
