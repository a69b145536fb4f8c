"""Sentence vectors from other processes: how they travel, and what becomes of a request when they do not."""

import asyncio

import numpy as np
import pytest

from core.engines.artefact import FOLDER, encoder_digest_of, read_manifest
from core.engines.embedded import Encoder
from core.errors import EngineFailed, EngineUnavailable, FingerprintMismatch
from deployments.fast_table import FastTable, RemoteEncoder, encoder_here
from jobs.models import MODELS_DIR, prepare


@pytest.fixture(scope="module")
def folder():
    """The embedded model, which `make test` prepares."""
    return prepare(MODELS_DIR)


def vectors_of(texts):
    return [np.full(4, len(text), np.float32) for text in texts]


class Replica:
    """What a handle to a replica does, by script."""

    def __init__(self, answer=vectors_of, gate=None):
        self.calls, self.answer, self.gate = [], answer, gate

    async def __call__(self, texts):
        self.calls.append(texts)
        if self.gate is not None:
            await self.gate.wait()
        return self.answer(texts)


async def test_texts_that_arrive_together_travel_together_and_each_gets_its_own():
    replica = Replica()
    encoder = RemoteEncoder(replica, 1.0)

    found = await asyncio.gather(*(encoder.encode([f"{'x' * n}"]) for n in range(5)))

    assert len(replica.calls) == 1
    assert [vector[0] for (vector,) in found] == [0, 1, 2, 3, 4]


async def test_a_replica_that_takes_too_long_is_not_waited_for():
    encoder = RemoteEncoder(Replica(gate=asyncio.Event()), 0.01)

    with pytest.raises(EngineUnavailable, match=r"no sentence vector within 0\.01 s"):
        await encoder.encode(["x"])


@pytest.mark.parametrize(
    ("error", "expected"), [(RuntimeError("gone"), Exception), (EngineUnavailable("x"), EngineUnavailable)]
)
async def test_a_replica_that_fails_is_an_engine_error_for_each_of_those_who_asked(error, expected):
    def fail(_texts):
        raise error

    encoder = RemoteEncoder(Replica(fail), 1.0)

    found = await asyncio.gather(encoder.encode(["x"]), encoder.encode(["y"]), return_exceptions=True)

    assert all(isinstance(one, EngineUnavailable | EngineFailed) for one in found)
    assert all(isinstance(one, expected) for one in found)


async def test_an_answer_of_another_length_is_none():
    encoder = RemoteEncoder(Replica(lambda texts: []), 1.0)

    with pytest.raises(EngineFailed, match="0 vectors for 1 texts"):
        await encoder.encode(["x"])


async def test_waiting_for_a_replica_ends_when_one_answers_or_in_time():
    await RemoteEncoder(Replica(), 1.0).warm(1.0)

    with pytest.raises(EngineUnavailable, match="no FastTable replica"):
        await RemoteEncoder(Replica(gate=asyncio.Event()), 1.0).warm(0.01)


async def test_a_replica_gives_the_vectors_that_tables_are_fitted_on(folder):
    replica = FastTable(str(folder), encoder_digest_of(read_manifest(folder)), 1)
    texts = ["lost my card", "", "naïve\r\ntext\x00", "word " * 2_000]

    found = await replica.encode(texts)

    encode = Encoder(folder, 1).encode
    for text, vector in zip(texts, found, strict=True):
        np.testing.assert_array_equal(vector, encode(text).vector)


def test_a_replica_with_another_encoder_does_not_start(folder):
    with pytest.raises(FingerprintMismatch) as caught:
        FastTable(str(folder), "of another", 1)

    assert "of another" in str(caught.value)
    assert encoder_digest_of(read_manifest(folder)) in str(caught.value)


def test_a_node_without_a_prepared_model_has_no_encoder(folder, tmp_path):
    assert encoder_here(None) is None
    assert encoder_here(str(tmp_path)) is None
    assert encoder_here(str(MODELS_DIR / FOLDER)) == encoder_digest_of(read_manifest(folder))
