"""From outcomes on examples that nobody fitted to a certificate: Learn then Test.

The thresholds that may be tried, and the order in which they are, come from the rehearsal alone: what
students said of the fit examples when they had not seen them. The first is the one that looks most likely to
pass; from there the walk goes to the lenient side and stops at the first failure. So each test may spend the
whole of delta (fixed sequence testing), and each is exact (Clopper and Pearson 1934).

Reference: Angelopoulos, Bates, Candes, Jordan and Lei (2021), Learn then Test.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from hashlib import blake2b

import numpy as np
import numpy.typing as npt
from scipy.special import bdtr

from core.tables.bounds import fewest_with, upper_bound
from core.tables.certificate import Certificate
from core.tables.spending import fewest_all_right

STEPS = 100  # thresholds that may be tried


@dataclass(frozen=True, slots=True)
class Outcomes:
    """How sure a student was of n answers, and which were wrong."""

    confidence: npt.NDArray[np.float64]  # (n,); NaN where it must not answer
    wrong: npt.NDArray[np.bool_]  # (n,)


@dataclass(frozen=True, slots=True)
class Sample:
    """What is known of the certification examples beside their outcomes."""

    task: str
    n: int  # examples
    effective_n: float  # see core.tables.split
    inputs: Sequence[bytes]  # digests, for the certificate's id


def certify(
    rehearsal: Outcomes,
    held_out: Outcomes,
    sample: Sample,
    *,
    alpha: float,
    delta: float,
    level_error: int = 0,
    kind: str = "gold",
) -> Certificate:
    """Find the most lenient threshold above which at most `alpha` of the answers are wrong.

    Args:
        rehearsal: out-of-fold outcomes on the fit examples.
        held_out: outcomes of the compiled table, one for each distinct certification input.
        sample: what the certificate says about those inputs.
        alpha: error rate to prove, in (0, 1).
        delta: probability with which the proof may fail, in (0, 1).
        level_error: how far off a score was still counted as right; recorded.
        kind: what the answers were compared with; recorded.
    """
    distinct = len(held_out.wrong)
    threshold = _walk(rehearsal, held_out, alpha, delta)
    covered = held_out.confidence >= threshold
    certified_n, errors = int(covered.sum()), int(held_out.wrong[covered].sum())
    certified = certified_n > 0
    return Certificate(
        id=_identify(sample, threshold, (alpha, delta), kind),
        kind=kind,
        alpha=alpha,
        delta=delta,
        threshold=threshold,
        n=sample.n,
        distinct=distinct,
        effective_n=sample.effective_n,
        accuracy=float(1.0 - held_out.wrong.mean()) if distinct else 0.0,
        certified_n=certified_n,
        errors=errors,
        upper_bound=upper_bound(errors, certified_n, delta) if certified else None,
        level_error=level_error,
        reason=None if certified else _reason(rehearsal, held_out, alpha, delta),
    )


def candidates(rehearsal: Outcomes, held_out_n: int, alpha: float) -> list[float]:
    """Thresholds in the order in which they are tried, from the one that looks safest to the most lenient.

    The safest is the one whose test, with as many errors as the rehearsal suggests among the expected number
    of held-out answers, would have the smallest p-value.
    """
    answered = ~np.isnan(rehearsal.confidence)
    confidence, wrong = rehearsal.confidence[answered], rehearsal.wrong[answered]
    if not len(confidence):
        return []
    order = np.argsort(-confidence, kind="stable")
    confidence, errors = confidence[order], np.cumsum(wrong[order])
    steps = np.unique(np.ceil(np.linspace(0, len(confidence), STEPS + 1)[1:]).astype(np.int64))
    thresholds = np.unique(confidence[steps - 1])[::-1]
    counts = np.searchsorted(-confidence, -thresholds, side="right")  # ties go together
    expected = np.maximum(1.0, np.round(counts / len(answered) * held_out_n))
    # One half added to each side: no errors in a handful is not the same as none in a thousand.
    rate = (errors[counts - 1] + 0.5) / (counts + 1.0)
    p_values = bdtr(np.ceil(rate * expected), expected.astype(np.int64), alpha)
    first = int(p_values.argmin())
    return [float(threshold) for threshold in thresholds[first:]]


def _walk(rehearsal: Outcomes, held_out: Outcomes, alpha: float, delta: float) -> float:
    passed = math.inf
    for threshold in candidates(rehearsal, len(held_out.wrong), alpha):
        covered = held_out.confidence >= threshold
        if upper_bound(int(held_out.wrong[covered].sum()), int(covered.sum()), delta) > alpha:
            break
        passed = threshold
    return passed


def _identify(sample: Sample, threshold: float, levels: tuple[float, float], kind: str) -> str:
    digest = blake2b(digest_size=6)
    inputs = (each.hex() for each in sorted(sample.inputs))
    for part in (sample.task, kind, repr(threshold), repr(levels), *inputs):
        digest.update(f"{len(part)} {part}".encode(errors="surrogatepass"))
    return f"{sample.task}#{digest.hexdigest()}"


def _reason(rehearsal: Outcomes, held_out: Outcomes, alpha: float, delta: float) -> str:
    n, floor = len(held_out.wrong), fewest_all_right(alpha, delta)
    if n < floor:
        return (
            f"{n} distinct inputs were held out, and at alpha {alpha:g} a certificate takes {floor} with "
            f"every answer right: {floor - n} more are needed"
        )
    tried = candidates(rehearsal, n, alpha)
    if not tried:
        return "the student answered no example that it had not seen; give it more examples of each option"
    covered = held_out.confidence >= tried[0]
    count, errors = int(covered.sum()), int(held_out.wrong[covered].sum())
    said = f"of the {count} answers above the safest threshold {errors} were wrong"
    if count and errors / count < alpha:
        needed = math.ceil(fewest_with(errors, alpha, delta) * n / count)
        return f"{said}, which proves too little: about {needed - n} more held-out examples as good would do"
    return f"{said}, more than alpha {alpha:g} allows: give it more examples to learn from, or a larger alpha"
