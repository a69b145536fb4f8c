import numpy as np
import pytest

from core.tables.features import PAIR_SLOTS, featurize

SIZE = 1_000


def test_a_text_has_its_tokens_and_each_pair_of_neighbours():
    features = featurize(np.array([5, 7, 5], np.int32), SIZE)

    assert features[:3].tolist() == [5, 7, 5]
    assert len(features) == 5
    assert all(SIZE <= pair < SIZE + PAIR_SLOTS for pair in features[3:])


def test_no_tokens_make_no_features_and_one_makes_one():
    assert featurize(np.zeros(0, np.int32), SIZE).tolist() == []
    assert featurize(np.array([9], np.int32), SIZE).tolist() == [9]


def test_a_pair_is_not_the_pair_the_other_way_round():
    one, other = featurize(np.array([3, 4, 3], np.int32), SIZE)[3:]

    assert one != other


def test_a_pair_is_the_same_wherever_it_stands():
    alone = featurize(np.array([3, 4], np.int32), SIZE)[2]

    assert featurize(np.array([9, 3, 4, 9], np.int32), SIZE)[5] == alone


def test_no_two_tokens_share_a_slot_before_the_same_token():
    slots = {int(featurize(np.array([token, 1], np.int32), SIZE)[2]) for token in range(30_000)}

    assert len(slots) == 30_000


@pytest.mark.parametrize("dtype", [np.int32, np.int64])
def test_the_width_of_the_ids_does_not_matter(dtype):
    ids = np.array([30_521, 1, 29_999], dtype)

    assert featurize(ids, 30_522).tolist() == featurize(ids.astype(np.int64), 30_522).tolist()


def test_the_slots_are_pinned():
    """Tables that were fitted before must read the same features: another slot needs another version."""
    assert featurize(np.array([1, 2, 3], np.int32), 10).tolist() == [1, 2, 3, 227_773, 193_391]
