"""Static vectors distilled from an encoder's vectors of single tokens."""

import numpy as np
import pytest

from jobs.distil import COMPONENTS, distil

DIM, N = 300, 1_000
TOKENS = ["[PAD]", "[UNK]", "[", "]", *(f"word{i}" for i in range(N - 4))]


@pytest.fixture(scope="module")
def vectors():
    return np.random.default_rng(0).normal(size=(N, DIM)).astype(np.float32)


@pytest.fixture(scope="module")
def distilled(vectors):
    return distil(vectors, TOKENS)


def test_there_is_one_finite_vector_for_each_token(distilled):
    assert distilled.shape == (N, COMPONENTS)
    assert distilled.dtype == np.float16
    assert np.isfinite(distilled).all()


def test_marks_are_no_text_and_brackets_are(distilled):
    is_zero = ~distilled.any(axis=1)

    assert is_zero[:4].tolist() == [True, True, False, False]
    assert not is_zero[4:].any()


def test_frequent_tokens_weigh_less_than_rare_ones(distilled):
    lengths = np.linalg.norm(distilled.astype(np.float64), axis=1)

    assert lengths[4:24].mean() < lengths[-20:].mean()


def test_neither_a_shift_of_all_vectors_nor_a_turn_of_their_axes_moves_what_tokens_have_in_common(vectors):
    turn = np.linalg.qr(np.random.default_rng(1).normal(size=(DIM, DIM)))[0]

    plain = distil(vectors, TOKENS).astype(np.float64)
    moved = distil((vectors @ turn + 3.0).astype(np.float32), TOKENS).astype(np.float64)

    np.testing.assert_allclose(plain[-50:] @ plain[-50:].T, moved[-50:] @ moved[-50:].T, atol=0.5)
