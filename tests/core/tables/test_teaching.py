import numpy as np

from core.tables.fit import FOLDS
from core.tables.teaching import FITS, SHARE, Teaching


def lesson(n=100, classes=2, seed=0):
    rng = np.random.default_rng(seed)
    labels = rng.integers(0, classes, n)
    vectors = rng.normal(size=(n, 4)).astype(np.float32)
    vectors[np.arange(n), labels] += 1.0
    return vectors / np.linalg.norm(vectors, axis=1, keepdims=True), labels, np.arange(n) % FOLDS


def test_targets_are_distributions_that_lean_to_the_label():
    vectors, labels, folds = lesson()

    targets = Teaching(vectors, labels, 2, folds, lambda: None).targets()

    np.testing.assert_allclose(targets.sum(1), 1.0, rtol=1e-5)
    assert (targets[np.arange(100), labels] >= 1 - SHARE - 1e-6).all()
    assert targets.max() < 1.0


def test_targets_without_a_fold_do_not_know_its_labels():
    vectors, labels, folds = lesson()
    other = labels.copy()
    other[folds == 3] = other[folds == 3][::-1]  # the counts of the classes stay

    one = Teaching(vectors, labels, 2, folds, lambda: None)
    two = Teaching(vectors, other, 2, folds, lambda: None)

    rest = folds != 3
    np.testing.assert_array_equal(one.targets(3)[rest], two.targets(3)[rest])
    assert (one.targets()[rest] != two.targets()[rest]).any()


def test_a_teacher_leaves_the_only_example_of_a_class_alone():
    vectors, labels, folds = lesson(classes=2)
    labels[0] = 2

    targets = Teaching(vectors, labels, 3, folds, lambda: None).targets()

    assert targets[0].tolist() == [0.0, 0.0, 1.0]


def test_it_says_how_far_it_is():
    vectors, labels, folds = lesson()
    told = []

    Teaching(vectors, labels, 2, folds, lambda: told.append(1))

    assert len(told) == FITS
