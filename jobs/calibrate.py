"""Fit the embedded engine's readout: `python -m jobs.calibrate --data ../shared/data`.

Seven numbers turn similarities into probabilities. They are fitted by maximum likelihood on one half of
public data sets, split by a digest of the text so that copies of a text stay on one side, and judged on the
other half. The profile is written with its provenance: data, rows, split, wordings, source of the vectors,
and the error before and after. Before means cosines taken for logits as they are.
"""

import argparse
import csv
import json
import sys
from collections.abc import Callable, Iterable
from dataclasses import asdict, dataclass, replace
from datetime import UTC, datetime
from functools import partial
from hashlib import sha256
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from core.contract.questions import Noul
from core.engines.artefact import RECIPE, SOURCE_SHA256, digest_of
from core.engines.embedded import Encoder
from core.engines.profile import PROFILE_FILE, Profile
from core.engines.texts import sides as sides_of
from core.engines.vectors import Encode
from core.errors import PrecedentError, SettingsError
from jobs.models import MODELS_DIR, prepare

Floats = npt.NDArray[np.float64]

SEED = 20_000
OPTION_COUNTS = (2, 3, 5, 10, 26, 77)
INSTRUCTIONS = "What is the message about?"
ABOUT_YES = (
    ("Is this message about {}?", None),
    ("Does the customer ask about {}?", None),
    ("{}?", None),
    (None, "The message is about {}."),
    ("Is this about {}?", "it mentions {}"),
)
"""Instructions of a noul and text of its yes: people word such questions in all of these ways."""
ABOUT_NO = ("The message is about {other}.", "It is about something else.", "It is not about {}.")
"""Text of its no: another topic, no topic, or the yes denied."""
ECE_BINS = 15
UNFITTED = Profile(1.0, 0.0, 1.0, 0.0, 1.0, 1.0, 0.0)  # cosines taken for logits as they are
WEIGHTS_TRIED = (0.0, 0.05, 0.1, 0.2)
FILES = {"banking77": "banking77_train.csv", "clinc150": "clinc150_train.jsonl"}


@dataclass(frozen=True, slots=True)
class Labelled:
    """Texts with the index of the label of each."""

    name: str
    texts: list[str]
    labels: list[str]
    gold: npt.NDArray[np.int64]


def read_banking77(folder: Path) -> Labelled:
    """Customer-service queries with 77 intents."""
    with (folder / FILES["banking77"]).open(encoding="utf-8", newline="") as file:
        rows = [(row["text"], row["category"]) for row in csv.DictReader(file)]
    return _labelled("banking77", rows)


def read_clinc150(folder: Path) -> Labelled:
    """Assistant queries with 150 intents; those out of scope are left out."""
    with (folder / FILES["clinc150"]).open(encoding="utf-8") as file:
        rows = [(row["text"], row["label"]) for row in map(json.loads, file)]
    return _labelled("clinc150", [row for row in rows if row[1] != "oos"])


READERS: dict[str, Callable[[Path], Labelled]] = {"banking77": read_banking77, "clinc150": read_clinc150}


def spoken(label: str) -> str:
    """A label's name as words."""
    return label.replace("_", " ")


def is_fitted_on(text: str) -> bool:
    """Which half of the data a text belongs to, by its digest."""
    return sha256(text.strip().lower().encode()).digest()[0] % 2 == 0


def calibrate(data: Path, models_dir: Path) -> dict[str, Any]:
    """Fit the profile on the data in `data` and return it with its provenance.

    Raises:
        SettingsError: the data sets are not in `data`.
    """
    missing = [name for name in FILES.values() if not (data / name).exists()]
    if missing:
        raise SettingsError("--data", f"{data} lacks {', '.join(missing)}; name the folder that holds them")
    encoder = Encoder(prepare(models_dir), threads=2)
    sets = [Vectors.of(read(data), encoder.encode) for read in READERS.values()]
    asked = encoder.encode(INSTRUCTIONS).vector
    rng = np.random.default_rng(SEED)
    fit = Cases.draw([one.half(True) for one in sets], asked, rng)
    held = Cases.draw([one.half(False) for one in sets], asked, rng)
    profile = fitted(fit)
    return {
        "profile": asdict(profile),
        "provenance": {
            "made": datetime.now(UTC).date().isoformat(),
            "source_sha256": SOURCE_SHA256,
            "recipe": RECIPE,
            "data": {
                one.name: {
                    "file": FILES[one.name],
                    "sha256": digest_of(data / FILES[one.name]),
                    "fitted": one.half(True).size,
                    "held_out": one.half(False).size,
                }
                for one in sets
            },
            "split": "first byte of SHA-256 of the stripped lower-case text: even is fitted, odd is held out",
            "seed": SEED,
            "option_counts": OPTION_COUNTS,
            "about_yes": ABOUT_YES,
            "about_no": ABOUT_NO,
            "score": "no ordinal data among these sets: scores share the scale of choices",
            "held_out_before": held.judged(UNFITTED),
            "held_out_after": held.judged(profile),
        },
    }


@dataclass(frozen=True, slots=True)
class Vectors:
    """A labelled set as the encoder sees it."""

    name: str
    texts: Floats  # (n, dim)
    labels: Floats  # (labels, dim)
    about_yes: Floats  # (wordings, labels, dim), see ABOUT_YES
    about_no: Floats  # (wordings, labels, dim), see ABOUT_NO
    gold: npt.NDArray[np.int64]
    fitted: npt.NDArray[np.bool_]

    @property
    def size(self) -> int:
        """How many texts."""
        return len(self.gold)

    @classmethod
    def of(cls, data: Labelled, encode: Encode) -> "Vectors":
        """Encode a set."""

        def encoded(texts: Iterable[str]) -> Floats:
            return np.stack([encode(text).vector for text in texts]).astype(np.float64)

        names = [spoken(label) for label in data.labels]
        return cls(
            data.name,
            encoded(data.texts),
            encoded(names),
            np.stack([encoded(_yes(asked, yes, name) for name in names) for asked, yes in ABOUT_YES]),
            np.stack([encoded(wording.format(name, other=name) for name in names) for wording in ABOUT_NO]),
            data.gold,
            np.array([is_fitted_on(text) for text in data.texts]),
        )

    def half(self, fitted: bool) -> "Vectors":
        """The texts to fit on, or the others."""
        kept = self.fitted == fitted
        return replace(self, texts=self.texts[kept], gold=self.gold[kept], fitted=self.fitted[kept])


@dataclass(frozen=True, slots=True)
class Cases:
    """Questions with known answers, as similarities."""

    to_state: list[Floats]  # one array of (rows, options) per option count
    to_instructions: list[Floats]
    gold: list[npt.NDArray[np.int64]]  # index of the right option
    sides: Floats  # (nouls, 2): similarity with the text of the yes, and with that of the no
    is_yes: npt.NDArray[np.bool_]  # half of them

    @classmethod
    def draw(cls, sets: list[Vectors], asked: npt.NDArray[np.float32], rng: np.random.Generator) -> "Cases":
        """Draw options and sides at random for every text."""
        choices = [_choices(one, count, asked, rng) for one in sets for count in OPTION_COUNTS]
        sides, is_yes = (
            np.concatenate(part) for part in zip(*(_nouls(one, rng) for one in sets), strict=True)
        )
        return cls([c[0] for c in choices], [c[1] for c in choices], [c[2] for c in choices], sides, is_yes)

    def option_loss(self, scale: float, weight: float) -> float:
        """Mean negative log-likelihood of the right option, in nats, over option counts."""
        return float(np.mean([-np.log(rows).mean() for rows in self._right(scale, weight)]))

    def judged(self, profile: Profile) -> dict[str, dict[str, float]]:
        """Negative log-likelihood, calibration error and Brier score of each kind of question."""
        right = np.concatenate(self._right(profile.option_scale, profile.instruction_weight))
        top, hit = self._tops(profile)
        one_text = _sigmoid(profile.yes_scale * self.sides[:, 0] + profile.yes_offset)
        weights = np.array([profile.sides_yes_scale, -profile.sides_no_scale])
        two_texts = _sigmoid(self.sides @ weights + profile.sides_offset)
        return {
            "choice": {
                "nll": _short(-np.log(right).mean()),
                "ece": ece(top, hit),
                "accuracy": _short(hit.mean()),
            },
            "noul": _binary(one_text, self.is_yes),
            "noul_two_sides": _binary(two_texts, self.is_yes),
        }

    def _right(self, scale: float, weight: float) -> list[Floats]:
        return [
            distributions[np.arange(len(gold)), gold]
            for distributions, gold in zip(self._distributions(scale, weight), self.gold, strict=True)
        ]

    def _distributions(self, scale: float, weight: float) -> list[Floats]:
        return [
            _softmax(scale * (state + weight * asked))
            for state, asked in zip(self.to_state, self.to_instructions, strict=True)
        ]

    def _tops(self, profile: Profile) -> tuple[Floats, npt.NDArray[np.bool_]]:
        every = self._distributions(profile.option_scale, profile.instruction_weight)
        top = np.concatenate([rows.max(1) for rows in every])
        hit = np.concatenate([rows.argmax(1) == gold for rows, gold in zip(every, self.gold, strict=True)])
        return top, hit


def fitted(cases: Cases) -> Profile:
    """The numbers with the smallest loss; instructions weigh what costs less than a thousandth of a nat."""
    scales = {w: minimum(partial(cases.option_loss, weight=w), 1.0, 80.0) for w in WEIGHTS_TRIED}
    losses = {w: cases.option_loss(scale, w) for w, scale in scales.items()}
    weight = max(w for w in WEIGHTS_TRIED if losses[w] <= min(losses.values()) + 0.001)
    (yes_scale,), yes_offset = logistic(cases.sides[:, :1], cases.is_yes)
    (sides_yes, sides_no), sides_offset = logistic(cases.sides, cases.is_yes)
    numbers = (scales[weight], weight, yes_scale, yes_offset, sides_yes, -sides_no, sides_offset)
    return Profile(*(round(float(number), 3) for number in numbers))


def ece(confidence: Floats, right: npt.NDArray[np.bool_]) -> float:
    """Expected calibration error over `ECE_BINS` bins of equal width, in [0, 1] (Naeini et al., 2015)."""
    bins = np.minimum((confidence * ECE_BINS).astype(int), ECE_BINS - 1)
    gaps = [
        abs(confidence[bins == b].mean() - right[bins == b].mean()) * (bins == b).mean() for b in set(bins)
    ]
    return _short(sum(gaps))


def auc(scores: Floats, positive: npt.NDArray[np.bool_]) -> float:
    """Chance that a positive scores above a negative, ties counting half (Mann and Whitney, 1947)."""
    _, inverse, counts = np.unique(scores, return_inverse=True, return_counts=True)
    ranks = (np.cumsum(counts) - (counts - 1) / 2)[inverse]
    yes = int(positive.sum())
    no = len(positive) - yes
    return float((ranks[positive].sum() - yes * (yes + 1) / 2) / (yes * no))


def _labelled(name: str, rows: list[tuple[str, str]]) -> Labelled:
    labels = sorted({label for _, label in rows})
    index = {label: i for i, label in enumerate(labels)}
    return Labelled(name, [text for text, _ in rows], labels, np.array([index[label] for _, label in rows]))


def _choices(
    one: Vectors, count: int, asked: npt.NDArray[np.float32], rng: np.random.Generator
) -> tuple[Floats, Floats, npt.NDArray[np.int64]]:
    """For each text the right option and `count - 1` others, in random places."""
    others = np.argsort(rng.random((one.size, len(one.labels))), axis=1)
    others = np.stack([row[row != gold][: count - 1] for row, gold in zip(others, one.gold, strict=True)])
    place = rng.integers(0, count, one.size)
    options = np.concatenate([one.gold[:, None], others], axis=1)
    rows = np.arange(one.size)
    options[rows, 0], options[rows, place] = options[rows, place], options[rows, 0].copy()
    to_state = one.texts @ one.labels.T
    return np.take_along_axis(to_state, options, axis=1), (one.labels @ asked)[options], place


def _nouls(one: Vectors, rng: np.random.Generator) -> tuple[Floats, npt.NDArray[np.bool_]]:
    """For each text and wording a question about its own label, or about another; as many of each."""
    rows, sides, answers = np.arange(one.size), [], []
    for about_yes in one.about_yes:
        to_yes = one.texts @ about_yes.T
        for wording, about_no in zip(ABOUT_NO, one.about_no, strict=True):
            is_yes = rng.random(one.size) < 0.5
            other = (one.gold + rng.integers(1, len(one.labels), one.size)) % len(one.labels)
            asked, against = np.where(is_yes, one.gold, other), np.where(is_yes, other, one.gold)
            to_no = (one.texts @ about_no.T)[rows, against if "{other}" in wording else asked]
            sides.append(np.stack([to_yes[rows, asked], to_no], axis=1))
            answers.append(is_yes)
    return np.concatenate(sides), np.concatenate(answers)


def _yes(instructions: str | None, yes: str | None, label: str) -> str:
    """The text of a yes about `label`, as the engine makes it."""
    said = [None if part is None else part.format(label) for part in (instructions, yes)]
    text = sides_of(Noul(said[0], said[1], None)).yes
    assert text is not None  # one of the two always says something
    return text


def logistic(x: Floats, y: npt.NDArray[np.bool_]) -> tuple[list[float], float]:
    """Weights and offset of a logistic regression, by Newton's method.

    Args:
        x: (n, numbers).
        y: (n,).
    """
    design = np.concatenate([x, np.ones((len(x), 1))], axis=1)
    weights = np.zeros(design.shape[1])
    for _ in range(50):
        p = _sigmoid(design @ weights)
        curvature = (design * (p * (1 - p))[:, None]).T @ design
        weights += np.linalg.solve(curvature, design.T @ (y - p))
    return weights[:-1].tolist(), float(weights[-1])


def minimum(loss: Callable[[float], float], low: float, high: float) -> float:
    """Where a function with one valley in [low, high] is smallest, by golden section."""
    golden = (5**0.5 - 1) / 2
    while high - low > 0.005:
        left, right = high - golden * (high - low), low + golden * (high - low)
        if loss(left) < loss(right):
            high = right
        else:
            low = left
    return (low + high) / 2


def _softmax(logits: Floats) -> Floats:
    weights: Floats = np.exp(logits - logits.max(axis=1, keepdims=True))
    normal: Floats = weights / weights.sum(axis=1, keepdims=True)
    return normal


def _sigmoid(logits: Floats) -> Floats:
    probability: Floats = 1.0 / (1.0 + np.exp(-logits))
    return probability


def _log_loss(p: Floats, y: npt.NDArray[np.bool_]) -> float:
    return float(-np.log(np.where(y, p, 1.0 - p)).mean())


def _binary(p: Floats, y: npt.NDArray[np.bool_]) -> dict[str, float]:
    sure = np.maximum(p, 1.0 - p)
    return {
        "nll": _short(_log_loss(p, y)),
        "ece": ece(sure, (p >= 0.5) == y),
        "brier": _short(((p - y) ** 2).mean()),
        "auc": _short(auc(p, y)),
    }


def _short(value: float) -> float:
    return round(float(value), 4)


def main() -> int:
    """Fit, write the profile, and print what it is worth."""
    parser = argparse.ArgumentParser(prog="python -m jobs.calibrate", description=__doc__.partition("\n")[0])
    parser.add_argument(
        "--data", type=Path, required=True, help="folder of banking77_train.csv and the others"
    )
    parser.add_argument("--models-dir", type=Path, default=MODELS_DIR)
    parser.add_argument("--out", type=Path, default=PROFILE_FILE)
    given = parser.parse_args()
    try:
        profile = calibrate(given.data, given.models_dir)
    except PrecedentError as error:
        print(error, file=sys.stderr)
        return 1
    given.out.write_text(json.dumps(profile, indent=2) + "\n")
    print(json.dumps(profile, indent=2))
    return 0


if __name__ == "__main__":
    sys.exit(main())
