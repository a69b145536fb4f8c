"""The promise of a certificate over all refits of a task's life, against known truth."""

import asyncio
from concurrent.futures import ProcessPoolExecutor
from dataclasses import replace
from functools import partial

import numpy as np
import pytest

from core.tables.students import Fitted
from core.tables.verdict import Verdict
from core.tasks.learning import RowStudent
from core.tasks.record import CertifySettings, FastTableSettings, Learned, State
from core.tasks.record_json import encode
from core.tasks.refitter import Refitter, learners
from core.tasks.rows import Drawn, Row, about, series_of
from core.tasks.stores.memory import MemoryTaskStore
from tests.core.tasks.tables import record

pytestmark = pytest.mark.validity

ALPHA, DELTA = 0.05, 0.1
TRUE_ERROR = 0.055
LIVES, REFITS = 1_000, 10
FRESH, HOLDOUT = 160, 0.9  # of 144 certification rows even the tenth look can be passed
ENGINE = "the engine"


class Guesses:
    """A table that is wrong with the same probability however sure it is: features are what it says."""

    kind, student = "static", ""

    def judge(self, features, vector=None):
        said, sure = features.tolist()
        return Verdict((1.0, 0.0) if said == 0 else (0.0, 1.0), sure / 1_000)

    def to_bytes(self):
        return b"guesses"


class Guesser:
    """Its student."""

    kind = "static"

    def see(self, texts):
        raise AssertionError("there are no texts")

    def fit(self, seen, answers, options, progress):
        return Fitted(Guesses(), [Guesses().judge(one) for one in seen.features])  # type: ignore[arg-type]


def learner():
    return record(
        table=None,
        state=State.LEARNING,
        certify=CertifySettings(ALPHA, DELTA, HOLDOUT),
        fast_table=FastTableSettings(learn=True, min_rows=FRESH),
        learned=Learned(),
    )


def rows_of(rng, first, n, error):
    """Rows of distinct inputs; their features are what the table will say, and how sure it will be."""
    wrong, sure = rng.random(n) < error, rng.integers(2, 1_000, n)
    said = rng.integers(0, 2, n)
    tops = np.where(wrong, 1 - said, said).tolist()
    revision = about(learner(), ENGINE)
    made = []
    for place, (top, one, confidence) in enumerate(zip(tops, said.tolist(), sure.tolist(), strict=True)):
        features = np.array((one, confidence), np.int64)
        digest = (first + place).to_bytes(32)
        answer = (1.0, 0.0) if top == 0 else (0.0, 1.0)
        row = Row(Drawn.TRAFFIC, features, answer, top, digest, revision, "tokens", float(first + place))
        made.append((f"{first + place:032x}", row.encode()))
    return made


async def live(rng, error, *, forgets_looks=False):
    """One task's life; whether a look of it ever publishes."""
    store = MemoryTaskStore()
    await store.put("acme", "support", encode(learner()), 0, 0.0)
    student = RowStudent(Guesser(), "tokens")
    refitter = Refitter(store, lambda _: student, ENGINE, lambda: 1e9)
    for refit in range(REFITS):
        (now,) = await learners(store)
        fresh = rows_of(rng, refit * FRESH, FRESH, error)
        await store.add_rows(series_of(now, "uniform"), fresh, FRESH)
        if forgets_looks:
            now = replace(now, looks=0)
        look = await refitter.look(now, lambda share: None)
        if look.published is not None:
            return True
    (last,) = await learners(store)
    assert last.looks == (1 if forgets_looks else REFITS)
    return False


def broken_among(lives, *, forgets_looks=False):
    """How many of so many lives, each with a seed of its own, ever publish."""
    with ProcessPoolExecutor(2) as pool:
        lived = partial(has_published, TRUE_ERROR, forgets_looks=forgets_looks)
        return sum(pool.map(lived, range(lives), chunksize=max(1, lives // 20)))


def has_published(error, seed, *, forgets_looks=False):
    return asyncio.run(live(np.random.default_rng(seed), error, forgets_looks=forgets_looks))


def test_few_lives_ever_serve_a_certificate_that_does_not_hold():
    assert 0 < broken_among(LIVES) / LIVES <= DELTA


def test_without_the_spending_too_many_would():
    assert broken_among(100, forgets_looks=True) / 100 > DELTA


def test_a_table_that_deserves_it_is_published():
    assert all(has_published(0.002, seed) for seed in range(5))
