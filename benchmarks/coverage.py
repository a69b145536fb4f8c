"""How much a table may answer, how often it is wrong there, and what an answer costs.

For each data set in ../shared/data, five splits by the digest of the text: 70 % to fit on, 20 % to certify
on, 10 % that nobody fitted or certified on, where everything is measured.

    share   of the test texts that a certificate of delta 0.1 covers, at alpha 0.05, 0.02 and 0.01
    first   the same where delta is what the first look at a task with delta 0.1 spends on one student
    error   among those of `share`; certificates are wrong for one split in ten at most
    fit     seconds of learning, rehearsal included; the vectors of texts are not
    cost    of one decision about a text of 15 to 22 tokens, on one thread

The students are `static`, which has the embedded encoder as its teacher and serves without it, and
`encoder`, whose cost includes that of the vector. Beside them, on the same rows: `shad0wllm` with thresholds
from its own procedure at the same alpha and delta, and, for the cost, `StaticModel.encode` of model2vec over
the same static vectors with `predict_proba` of scikit-learn.

`python -m benchmarks.coverage [--sets NAME ...] [--splits N]`; `make bench` measures the first split only.
"""

import argparse
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from benchmarks.result import result
from benchmarks.run import table as columns
from benchmarks.table_peers import Shad0w, shad0w_threshold, static_model_classifier
from core.engines.artefact import TOKENIZER_FILE
from core.engines.embedded import Encoder
from core.tables.certify import Outcomes, Sample, certify
from core.tables.spending import share
from core.tables.split import distinct, input_digest, split
from core.tables.static_vectors import StaticVectors, load_static
from core.tables.students import Answers, EncoderStudent, StaticStudent, Student
from core.tables.table import Table
from core.tables.tokens import Tokens
from core.tables.verdict import Verdict
from jobs.calibrate import READERS, Labelled
from jobs.models import MODELS_DIR, prepare

DATA = Path(__file__).resolve().parents[2] / "shared" / "data"
ALPHAS = (0.05, 0.02, 0.01)
DELTA = 0.1
FIRST = share(DELTA, 1, 1)
SPLITS = 5
TARGETS = {
    ("banking77", "static", 0.05): ">= 0.88",
    ("banking77", "static", 0.02): ">= 0.72",
    ("banking77", "encoder", 0.05): ">= 0.92",
    ("banking77", "encoder", 0.02): ">= 0.77",
}
COST = "<= 0.15"
TOKENS = range(15, 23)
TEXTS, ROUNDS = 60, 9

Vectors = npt.NDArray[np.float32]


def read_sms_spam(folder: Path) -> Labelled:
    """Text messages, spam or not."""
    lines = (folder / "sms_spam.tsv").read_text(encoding="utf-8").splitlines()
    rows = [line.split("\t", 1) for line in lines if line]
    labels = sorted({label for label, _ in rows})
    gold = np.array([labels.index(label) for label, _ in rows])
    return Labelled("sms_spam", [text for _, text in rows], labels, gold)


SETS: dict[str, Callable[[Path], Labelled]] = {**READERS, "sms_spam": read_sms_spam}


@dataclass(frozen=True, slots=True)
class Part:
    """Some texts of a set, with the index of the label of each."""

    texts: list[str]
    gold: npt.NDArray[np.int64]

    def names(self, labels: Sequence[str]) -> list[str]:
        """The labels, spelt out."""
        return [labels[label] for label in self.gold]


@dataclass(frozen=True, slots=True)
class Divided:
    """A set in three parts without a common input; in the last two, each input once."""

    name: str
    labels: list[str]
    fit: Part
    certify: Part
    test: Part


@dataclass(frozen=True, slots=True)
class Models:
    """What students are made of; the vector of a text is computed once."""

    static: StaticVectors
    encoder: Encoder
    tokenizer_json: bytes
    kept: dict[str, Vectors]

    @classmethod
    def load(cls, models_dir: Path) -> "Models":
        """From where `python -m jobs.models` keeps them."""
        folder = prepare(models_dir)
        tokenizer = (folder / TOKENIZER_FILE).read_bytes()
        return cls(load_static("english", models_dir), Encoder(folder, 1), tokenizer, {})

    def encode(self, texts: Sequence[str]) -> Vectors:
        """Sentence vectors, (n, dim)."""
        for text in texts:
            if text not in self.kept:
                self.kept[text] = self.encoder.encode(text).vector
        return np.stack([self.kept[text] for text in texts])


def divide(data: Labelled, number: int) -> Divided:
    """The `number`-th split of a set."""
    digests = [input_digest(text, data.name) for text in data.texts]
    outer = split(digests, f"coverage {number}", 0.3)
    inner = split([digests[i] for i in outer.certify], f"coverage {number}", 1 / 3)

    def once(places: Sequence[int]) -> Part:
        chosen = [outer.certify[place] for place in places]
        kept = distinct([digests[i] for i in chosen], [int(data.gold[i]) for i in chosen])
        return Part([data.texts[chosen[i]] for i in kept.indices], np.array(kept.labels))

    fit = Part([data.texts[i] for i in outer.fit], data.gold[list(outer.fit)])
    return Divided(data.name, data.labels, fit, once(inner.fit), once(inner.certify))


def run(sets: Sequence[str] = tuple(SETS), splits: int = 1) -> list[dict[str, Any]]:
    """Measure every set that is there."""
    models = Models.load(MODELS_DIR)
    rows: list[dict[str, Any]] = []
    for name in sets:
        try:
            data = SETS[name](DATA)
        except FileNotFoundError as error:
            print(f"{name} is left out: no {error.filename}")
            continue
        rows += told(measure([divide(data, number) for number in range(splits)], models))
    return rows


def told(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Print what is known so far: all sets together take the better part of an hour."""
    print(columns(rows), flush=True)
    return rows


def measure(splits: Sequence[Divided], models: Models) -> list[dict[str, Any]]:
    """Shares, errors and seconds over the splits of one set, then costs on the first."""
    seen: dict[tuple[str, ...], list[float]] = {}
    rows = []
    for part in splits:
        for kind, system in _systems(part, models).items():
            seen.setdefault((kind, "fit"), []).append(system.fit_s)
            for alpha in ALPHAS:
                covered = system.test.confidence >= system.threshold(alpha, DELTA)
                first = system.test.confidence >= system.threshold(alpha, FIRST)
                wrong = system.test.wrong[covered]
                seen.setdefault((kind, "share", str(alpha)), []).append(float(covered.mean()))
                seen.setdefault((kind, "first", str(alpha)), []).append(float(first.mean()))
                seen.setdefault((kind, "error", str(alpha)), []).append(
                    float(wrong.mean()) if len(wrong) else 0.0
                )
            if part is splits[0]:
                rows.append(_cost(kind, system.decide, part, models))
    name = splits[0].name
    return [
        result(
            f"coverage.{name}.{'.'.join(key)}",
            values,
            "s" if key[1] == "fit" else "share",
            target=TARGETS.get((name, key[0], float(key[2]))) if key[1] == "share" else None,
        )
        for key, values in seen.items()
    ] + rows


@dataclass(frozen=True, slots=True)
class System:
    """Something trained: what it says of the test texts, and how it is certified."""

    fit_s: float
    test: Outcomes
    threshold: Callable[[float, float], float]  # by alpha and delta
    decide: Callable[[str], object]


def _systems(part: Divided, models: Models) -> dict[str, System]:
    models.encode(part.fit.texts)  # so that learning is timed without it
    students: dict[str, Student] = {
        "static": StaticStudent(models.static, models.encode),
        "encoder": EncoderStudent(models.encode, "benchmark", models.tokenizer_json),
    }
    systems = {}
    for kind, student in students.items():
        began = time.perf_counter()
        fitted = student.fit(
            student.see(part.fit.texts), Answers(part.fit.gold), len(part.labels), lambda share: None
        )
        took = time.perf_counter() - began
        systems[kind] = _of_table(fitted.table, _outcomes(fitted.rehearsal, part.fit), took, part, models)
    return {**systems, "shad0wllm": _of_shad0w(part)}


def _of_table(table: Table, rehearsal: Outcomes, took: float, part: Divided, models: Models) -> System:
    def ask(texts: Sequence[str]) -> list[Verdict]:
        if table.kind == "static":
            return [table.decide(text) for text in texts]
        return [table.decide(text, vector) for text, vector in zip(texts, models.encode(texts), strict=True)]

    held = _outcomes(ask(part.certify.texts), part.certify)

    def threshold(alpha: float, delta: float) -> float:
        n = len(part.certify.texts)
        return certify(rehearsal, held, Sample(part.name, n, n, ()), alpha=alpha, delta=delta).threshold

    def decide(text: str) -> object:
        return table.decide(text, None if table.kind == "static" else models.encoder.encode(text).vector)

    return System(took, _outcomes(ask(part.test.texts), part.test), threshold, decide)


def _of_shad0w(part: Divided) -> System:
    certify_on = (part.certify.texts, part.certify.names(part.labels))
    began = time.perf_counter()
    peer = Shad0w.trained(part.fit.texts, part.fit.names(part.labels), certify_on, DELTA)
    took = time.perf_counter() - began
    held = peer.outcomes(*certify_on)
    test = peer.outcomes(part.test.texts, part.test.names(part.labels))
    return System(took, test, lambda alpha, delta: shad0w_threshold(held, alpha, delta), peer.decide)


def _outcomes(verdicts: Sequence[Verdict], part: Part) -> Outcomes:
    tops = [int(np.argmax(verdict.probabilities)) for verdict in verdicts]
    return Outcomes(np.array([verdict.confidence for verdict in verdicts]), np.array(tops) != part.gold)


def _cost(kind: str, decide: Callable[[str], object], part: Divided, models: Models) -> dict[str, Any]:
    """Microseconds of a decision, each round beside the same texts through the peer."""
    tokens = Tokens(models.static.tokenizer_json)
    texts = [text for text in part.test.texts if len(tokens.ids(text)) in TOKENS][:TEXTS]
    peer = static_model_classifier(models.static, part.fit.texts, part.fit.gold)
    costs, floors = [], []
    for _ in range(ROUNDS + 1):
        costs.append(_each_us(decide, texts))
        floors.append(_each_us(peer, texts))
    target = COST if kind == "static" and part.name == "banking77" else None
    return result(f"coverage.{part.name}.{kind}.cost", costs[1:], "us", floors[1:], target)


def _each_us(decide: Callable[[str], object], texts: Sequence[str]) -> float:
    began = time.perf_counter()
    for text in texts:
        decide(text)
    return (time.perf_counter() - began) / len(texts) * 1e6


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.coverage", description="Measure tables.")
    parser.add_argument("--sets", nargs="*", choices=tuple(SETS), default=tuple(SETS))
    parser.add_argument("--splits", type=int, default=SPLITS)
    given = parser.parse_args()
    run(given.sets, given.splits)


if __name__ == "__main__":
    main()
