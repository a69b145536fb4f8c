"""Vectors of texts that recur are kept, bounded, and apart for each value of isolation."""

import numpy as np

from core.engines.vectors import Encoded, KeptVectors


class Counting:
    """An encoder that remembers every text it was asked for."""

    def __init__(self):
        self.texts: list[str] = []

    def __call__(self, text: str) -> Encoded:
        self.texts.append(text)
        return Encoded(np.array([len(text), 1], dtype=np.float32), len(text), False)


def test_a_text_is_encoded_once():
    encode = Counting()
    kept = KeptVectors(encode)

    first, second = kept.of("tenant", "text"), kept.of("tenant", "text")

    assert second is first
    assert encode.texts == ["text"]


def test_other_values_of_isolation_share_nothing():
    encode = Counting()
    kept = KeptVectors(encode)

    kept.of("a", "text")
    kept.of("b", "text")

    assert encode.texts == ["text", "text"]


def test_where_isolation_ends_and_text_begins_counts():
    encode = Counting()
    kept = KeptVectors(encode)

    for isolation, text in [("a", "bc"), ("ab", "c"), ("", "abc"), ("abc", ""), ("1 a", "x"), ("1", " ax")]:
        kept.of(isolation, text)

    assert len(encode.texts) == 6


def test_no_more_are_kept_than_may_be_and_the_one_not_asked_for_the_longest_leaves_first():
    encode = Counting()
    kept = KeptVectors(encode, max_kept=2)
    for text in ("old", "young", "old", "new"):
        kept.of("", text)
    encode.texts.clear()

    for text in ("new", "old"):
        kept.of("", text)
    assert encode.texts == []

    kept.of("", "young")
    assert encode.texts == ["young"]


def test_half_a_surrogate_pair_is_a_text_like_any_other():
    encode = Counting()

    KeptVectors(encode).of("\ud800", "\udfff")

    assert encode.texts == ["\udfff"]
