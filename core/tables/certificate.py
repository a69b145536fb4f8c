"""A bound on how often a table's answers are wrong, and the threshold it was proven for."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Certificate:
    """Of the answers with `confidence >= threshold`, at most `alpha` are wrong.

    That holds with probability at least 1 - `delta` over the draw of the certification examples. A threshold
    of infinity certifies nothing: `covers` is then False for every answer, and `reason` says what is missing.
    """

    id: str  # "<task>#<12 hex digits>"
    kind: str  # "gold": against labels; "agreement": against the engine
    alpha: float  # in (0, 1)
    delta: float  # in (0, 1): what this certificate may spend, after the sharing over looks and students
    threshold: float  # smallest confidence that is certified; inf for none
    n: int  # certification examples
    distinct: int  # distinct inputs among them: each counts once
    effective_n: float  # (sum of counts)^2 / sum of squared counts over distinct inputs
    accuracy: float  # of the table over the distinct inputs, whatever its confidence
    certified_n: int  # distinct inputs at or above the threshold
    errors: int  # of them, wrong
    upper_bound: float | None  # Clopper-Pearson at `delta`; None when nothing is certified
    level_error: int  # a score counts as wrong beyond this distance; 0 for other questions
    reason: str | None  # why nothing is certified, and what would change it; None when something is

    @property
    def certified(self) -> bool:
        """Whether anything is."""
        return self.certified_n > 0

    @property
    def certified_share(self) -> float:
        """Share of distinct inputs that the table may answer, 0 to 1."""
        return self.certified_n / self.distinct if self.distinct else 0.0

    def covers(self, confidence: float) -> bool:
        """Whether an answer of this confidence is certified; never for NaN."""
        return confidence >= self.threshold
