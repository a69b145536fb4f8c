"""What a table says of one state."""

from dataclasses import dataclass
from typing import Protocol

import numpy as np
import numpy.typing as npt


@dataclass(frozen=True, slots=True)
class Verdict:
    """One distribution, and how sure the table is.

    `confidence` is what a certificate's threshold is compared with: the same unrounded number, computed by
    the same code, when the table is certified and when it serves. NaN where the table must not answer (an
    empty text, or one of which it knows too little), so that no threshold covers it.
    """

    probabilities: tuple[float, ...]  # in the question's order; 0.0 for options absent from the fit; sum 1
    confidence: float


class Decides(Protocol):
    """A table, as far as asking it is concerned."""

    kind: str  # "static": reads the text alone; "encoder": needs the text's sentence vector, too

    def decide(self, text: str, vector: npt.NDArray[np.float32] | None = None) -> Verdict:
        """The verdict on a state's text; `vector` has shape (dim,)."""
        ...
