"""What the embedded engine costs on one thread, what the batcher adds, and how often the answer is right.

Measured:

    latency     one yes/no question about a text of 15, 60 and 256 tokens, alone; the question was met before.
                Floor: the encoder alone on the same text.
    throughput  texts a second through the batched engine, asked for by 64 callers who come straight back.
                Peer: the model called directly with batches of as many texts.
    accuracy    label names as options, of BANKING77 and of CLINC150 without its texts out of scope, and the
                area under the curve of "Is this message about ...?", asked about the right label half of the
                time. On every n-th text in the order of labels, or on all with --full. Needs the data sets in
                ../shared/data.

Not measured: HTTP, handles, questions that were never met.
"""

import argparse
import asyncio
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.result import result
from core.contract.questions import Choice, Noul
from core.engines.base import Item, Reading
from core.engines.batcher import Batched
from core.engines.embedded import EmbeddedModel, Encoder
from jobs.calibrate import READERS, Labelled, auc, spoken
from jobs.models import MODELS_DIR, prepare

DATA = Path(__file__).resolve().parents[2] / "shared" / "data"
SEED = 20_001
EVERY = {"banking77": 2, "clinc150": 10}  # the nearer the target, the more texts it takes to tell
ACCURACY = {"banking77": ">= 0.60", "clinc150": ">= 0.66"}
AUC = ">= 0.85"
QUESTION = Noul("Is this message about a delivery?", None, None)
TOKENS = {15: 60, 60: 20, 256: 5}  # tokens of a text -> texts in one measurement
ROUNDS = 7
CALLERS = 64
TEXTS = 128
THROUGHPUT = ">= 0.9"
MAX_BATCH_TOKENS = 4_096


@dataclass(frozen=True, slots=True)
class Judged:
    """How often a model is right about a labelled set."""

    accuracy: float  # of the option with the highest probability
    auc: float  # of the probability of yes


def judge(model: EmbeddedModel, data: Labelled, every: int) -> Judged:
    """Ask which label a text has, and whether it has one that is its own half of the time.

    Args:
        model: who is asked.
        data: texts whose labels are known.
        every: 1 takes all texts, n every n-th in the order of labels, so that each label has its share.
    """
    rng = np.random.default_rng(SEED)
    labels = len(data.labels)
    chosen = np.argsort(data.gold, kind="stable")[::every]
    gold = data.gold[chosen]
    own = rng.random(len(gold)) < 0.5
    asked = np.where(own, gold, (gold + rng.integers(1, labels, len(gold))) % labels)
    choice = Choice(None, tuple(data.labels), (None,) * labels)
    hits, yes = [], []
    for row, right, about in zip(chosen, gold, asked, strict=True):
        text = data.texts[row]
        noul = Noul(f"Is this message about {spoken(data.labels[about])}?", None, None)
        over_labels, over_sides = model.read([Item(text, choice), Item(text, noul)])
        assert isinstance(over_labels, Reading)
        assert isinstance(over_sides, Reading)
        hits.append(np.argmax(over_labels.probabilities) == right)
        yes.append(over_sides.probabilities[0])
    return Judged(float(np.mean(hits)), auc(np.array(yes), own))


def run(full: bool = False) -> list[dict[str, Any]]:
    """Measure cost, and accuracy where the data sets are there; with `full`, on all of their texts."""
    folder = prepare(MODELS_DIR)
    model = EmbeddedModel.load(folder)
    costs = [*_latencies(model, Encoder(folder, threads=1)), asyncio.run(_throughput(model))]
    if not DATA.exists():
        print(f"no accuracy: the public data sets are not in {DATA}")
        return costs
    return costs + [row for name in READERS for row in _accuracy(model, name, 1 if full else EVERY[name])]


def _accuracy(model: EmbeddedModel, name: str, every: int) -> list[dict[str, Any]]:
    data = READERS[name](DATA)
    judged = judge(model, data, every)
    of = f"{name}, {len(data.gold[::every])} texts"
    options = f"{len(data.labels)} label names as options"
    return [
        result(f"embedded, accuracy, {options}, {of}", [judged.accuracy], "share", target=ACCURACY[name]),
        result(f"embedded, area under the curve of yes, {of}", [judged.auc], "share", target=AUC),
    ]


def _latencies(model: EmbeddedModel, encoder: Encoder) -> list[dict[str, Any]]:
    rows = []
    for tokens, texts in TOKENS.items():
        state = "a " * (tokens - 2)  # the marks of start and end are tokens too
        item = Item(state, QUESTION)
        asked, encoded = [], []
        for _ in range(ROUNDS):
            encoded.append(_ms(partial(encoder.encode, state), texts))
            asked.append(_ms(partial(model.read, [item]), texts))
        rows.append(result(f"embedded, a text of {tokens} tokens", asked, "ms", encoded))
    return rows


def _ms(step: Callable[[], object], times: int) -> float:
    """Mean milliseconds of a step."""
    began = time.perf_counter()
    for _ in range(times):
        step()
    return 1e3 * (time.perf_counter() - began) / times


async def _throughput(model: EmbeddedModel) -> dict[str, Any]:
    items = [Item(f"{n} parcels " + "came late " * (n % 12), QUESTION) for n in range(TEXTS)]
    engine = Batched(model, MAX_BATCH_TOKENS)
    batched, direct = [], []
    for _ in range(ROUNDS):
        direct.append(TEXTS / await _took_s(lambda: asyncio.to_thread(_read, model, items)))
        batched.append(TEXTS / await _took_s(lambda: _ask(engine, items)))
    await engine.close()
    return result(
        f"embedded, {CALLERS} callers of the batched engine", batched, "texts/s", direct, THROUGHPUT
    )


async def _took_s(step: Callable[[], Any]) -> float:
    began = time.perf_counter()
    await step()
    return time.perf_counter() - began


def _read(model: EmbeddedModel, items: list[Item]) -> None:
    for first in range(0, len(items), CALLERS):
        model.read(items[first : first + CALLERS])


async def _ask(engine: Batched, items: list[Item]) -> None:
    """Callers who take turns at the items, each with one at a time."""

    async def caller(number: int) -> None:
        for item in items[number::CALLERS]:
            await engine.answer([item])

    await asyncio.gather(*map(caller, range(CALLERS)))


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.embedded", description="Measure the embedded engine."
    )
    parser.add_argument("--full", action="store_true", help="judge all texts of the data sets, not a part")
    for row in run(parser.parse_args().full):
        print(row)


if __name__ == "__main__":
    main()
