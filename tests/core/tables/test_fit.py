import math

import numpy as np
import pytest
import scipy.sparse
from sklearn.linear_model import LogisticRegression

from core.tables.fit import FOLDS, Design, deal, fit, out_of_fold, smoothed, softmax, temperature


def drawn(n=300, dim=6, classes=3, seed=0):
    rng = np.random.default_rng(seed)
    labels = rng.integers(0, classes, n)
    dense = rng.normal(size=(n, dim)).astype(np.float32)
    dense[np.arange(n), labels] += 1.5
    return Design(scipy.sparse.csr_matrix((n, 0), dtype=np.float32), dense), labels


def test_it_finds_the_weights_that_another_solver_finds():
    design, labels = drawn()
    model = fit(design, smoothed(labels, 3, 0.0), penalty=1.0, tolerance=1e-8)
    peer = LogisticRegression(C=1.0, tol=1e-8, max_iter=1_000).fit(design.dense, labels)

    ours, theirs = softmax(model.scores(design)), peer.predict_proba(design.dense)

    np.testing.assert_allclose(ours, theirs, atol=2e-3)


def test_sparse_and_dense_columns_count_the_same():
    design, labels = drawn()
    targets = smoothed(labels, 3, 0.1)
    halves = Design(scipy.sparse.csr_matrix(design.dense[:, :3]), design.dense[:, 3:])

    whole = fit(design, targets, 1.0, 1e-8).scores(design)

    np.testing.assert_allclose(fit(halves, targets, 1.0, 1e-8).scores(halves), whole, atol=0.02)


def test_a_rehearsal_does_not_know_the_label_it_is_judged_by():
    rng = np.random.default_rng(1)
    dense = rng.normal(size=(200, 150)).astype(np.float32)
    design = Design(scipy.sparse.csr_matrix((200, 0), dtype=np.float32), dense)
    labels = rng.integers(0, 2, 200)  # noise: nothing can be learned, though all can be remembered
    targets = smoothed(labels, 2, 0.0)

    remembered = fit(design, targets, 0.01).scores(design).argmax(1) == labels
    rehearsed = out_of_fold(design, lambda _: targets, 0.01, np.arange(200) % FOLDS, lambda: None)

    assert remembered.mean() > 0.95
    assert 0.35 < (rehearsed.argmax(1) == labels).mean() < 0.65


def test_equal_inputs_share_a_fold_and_each_class_is_in_all():
    labels = np.repeat([0, 1], 20)
    inputs = [b"%d" % (place // 2) for place in range(40)]

    folds = deal(labels, inputs)

    assert (folds[::2] == folds[1::2]).all()
    for label in (0, 1):
        assert set(folds[labels == label]) == set(range(FOLDS))


@pytest.mark.parametrize("true", [0.5, 1.0, 2.0])
def test_the_temperature_undoes_what_scores_were_multiplied_by(true):
    rng = np.random.default_rng(0)
    scores = rng.normal(size=(20_000, 4)).astype(np.float32)
    labels = (softmax(scores).cumsum(1) > rng.random((20_000, 1))).argmax(1)

    assert math.isclose(temperature(scores * np.float32(true), labels), true, rel_tol=0.08)


def test_smoothed_targets_are_distributions():
    targets = smoothed(np.array([2, 0]), 4, 0.2)

    np.testing.assert_allclose(targets, [[0.05, 0.05, 0.85, 0.05], [0.85, 0.05, 0.05, 0.05]], rtol=1e-6)
