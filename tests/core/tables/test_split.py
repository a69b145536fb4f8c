"""Which examples are fitted on and which certified on."""

from hypothesis import given
from hypothesis import strategies as st

from core.tables.split import distinct, input_digest, split

DIGESTS = st.lists(st.integers(0, 30).map(lambda n: bytes([n]) * 32), max_size=120)


@given(DIGESTS, st.floats(0.01, 0.99))
def test_every_example_is_on_one_side_and_no_input_on_both(digests, holdout):
    parts = split(digests, "support", holdout)

    assert sorted(parts.fit + parts.certify) == list(range(len(digests)))
    assert {digests[i] for i in parts.fit}.isdisjoint(digests[i] for i in parts.certify)


@given(DIGESTS, st.randoms(use_true_random=False))
def test_the_order_of_the_examples_does_not_matter(digests, random):
    shuffled = random.sample(digests, len(digests))

    one, other = split(digests, "support", 0.5), split(shuffled, "support", 0.5)

    assert {digests[i] for i in one.certify} == {shuffled[i] for i in other.certify}


@given(st.integers(2, 400))
def test_the_certification_side_holds_what_was_asked_for_half_to_even(n):
    digests = [input_digest(f"text {i}", "q") for i in range(n)]

    assert len(split(digests, "support", 0.5).certify) == round(n / 2)


def test_117_examples_leave_58_and_118_leave_59():
    digests = [input_digest(f"text {i}", "q") for i in range(118)]

    assert len(split(digests[:117], "t", 0.5).certify) == 58
    assert len(split(digests, "t", 0.5).certify) == 59


def test_tasks_divide_the_same_inputs_differently():
    digests = [input_digest(f"text {i}", "q") for i in range(100)]

    assert split(digests, "one", 0.5).certify != split(digests, "other", 0.5).certify


def test_a_repeat_is_one_input_however_often_it_comes():
    digests = [b"a" * 32] * 30 + [bytes([i]) * 32 for i in range(70)]

    once = distinct(digests, [0] * 100)

    assert len(once.indices) == 71
    assert max(once.counts) == 30
    assert once.effective_n == 100**2 / (30**2 + 70)


def test_of_contradicting_labels_the_most_frequent_counts_and_of_equals_the_lowest():
    a, b = b"a" * 32, b"b" * 32

    assert distinct([a, a, a, b, b], [1, 2, 2, 3, 1]).labels == (2, 1)


def test_nothing_is_no_input():
    assert distinct([], []).effective_n == 0.0
    assert split([], "support", 0.5).certify == ()


def test_case_blanks_and_compatibility_forms_make_no_other_input():
    assert input_digest("Where  is\r\nMY ﬁle?", "q") == input_digest(" where is my file?", "q")


def test_other_words_and_other_questions_do():
    assert input_digest("where is my file", "q") != input_digest("where is my card", "q")
    assert input_digest("text", "one") != input_digest("text", "other")
    assert input_digest("b", "a") != input_digest("", "ab")
