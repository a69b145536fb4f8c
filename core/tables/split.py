"""Examples to fit on and examples to certify on, without an input in both."""

import unicodedata
from collections import Counter, defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from hashlib import sha256


@dataclass(frozen=True, slots=True)
class Split:
    """Indices of the examples on either side, ascending."""

    fit: tuple[int, ...]
    certify: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Distinct:
    """Examples with repeats put together."""

    indices: tuple[int, ...]  # of one example for each distinct input
    labels: tuple[int, ...]  # its label
    counts: tuple[int, ...]  # how many examples have the input

    @property
    def effective_n(self) -> float:
        """How many equally frequent inputs would be as informative: (sum of counts)^2 / sum of squares.

        Reference: Kish (1965).
        """
        return sum(self.counts) ** 2 / sum(count * count for count in self.counts) if self.counts else 0.0


def input_digest(state: str, question: str) -> bytes:
    """What an example is recognised by, 32 bytes, whatever its label.

    Compatibility forms, case and the kind and number of blanks do not make another input.

    Args:
        state: the state's text.
        question: the question, as compact JSON.
    """
    plain = " ".join(unicodedata.normalize("NFKC", state).casefold().split())
    return sha256(f"{len(question)} {question}{plain}".encode(errors="surrogatepass")).digest()


def split(digests: Sequence[bytes], task_id: str, holdout: float) -> Split:
    """Divide examples by their inputs; their order does not matter.

    Inputs are put in the order of a digest of task and input, and go to the certification side, each with all
    its examples, until that holds at least round(holdout * n).

    Args:
        digests: one per example.
        task_id: so that tasks with the same inputs divide them differently.
        holdout: share for certification, in (0, 1).
    """
    groups: defaultdict[bytes, list[int]] = defaultdict(list)
    for index, digest in enumerate(digests):
        groups[digest].append(index)
    salt = task_id.encode(errors="surrogatepass")
    wanted = round(holdout * len(digests))
    certify: list[int] = []
    for digest in sorted(groups, key=lambda digest: sha256(salt + digest).digest()):
        if len(certify) >= wanted:
            break
        certify += groups[digest]
    chosen = set(certify)
    return Split(tuple(index for index in range(len(digests)) if index not in chosen), tuple(sorted(certify)))


def distinct(digests: Sequence[bytes], labels: Sequence[int]) -> Distinct:
    """One example for each input; where its labels differ, the most frequent counts, the lowest of equals.

    The rule looks at labels alone, never at what a table says, so that it cannot favour the table.
    """
    groups: defaultdict[bytes, list[int]] = defaultdict(list)
    for index, digest in enumerate(digests):
        groups[digest].append(index)
    indices, chosen, counts = [], [], []
    for members in groups.values():
        votes = Counter(labels[index] for index in members)
        indices.append(members[0])
        chosen.append(min(votes, key=lambda label: (-votes[label], label)))
        counts.append(len(members))
    return Distinct(tuple(indices), tuple(chosen), tuple(counts))
