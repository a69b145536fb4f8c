import math
import pickle

import numpy as np
import pytest

from core.errors import InvalidRequest
from core.tables import compiling
from core.tables.students import Answers, EncoderStudent, Seen, StaticStudent
from core.tables.table import Table
from tests.toy_language import DIM, SPECIAL, WORDS, examples, static_vectors, texts_about, tokenizer_json


def encode(texts):
    """Unit vectors that tell the topics apart."""
    vectors = static_vectors().vectors
    words = dict(zip(WORDS, vectors[len(SPECIAL) :], strict=True))
    none = np.zeros(DIM, np.float32)
    sums = np.array([sum((words.get(word, none) for word in text.split()), none) for text in texts])
    return (sums / np.maximum(1e-9, np.linalg.norm(sums, axis=1, keepdims=True))).astype(np.float32)


STUDENTS = {
    "static": lambda: StaticStudent(static_vectors()),
    "static with a teacher": lambda: StaticStudent(static_vectors(), encode),
    "encoder": lambda: EncoderStudent(encode, "encoder digest", tokenizer_json()),
}


@pytest.fixture(params=STUDENTS)
def student(request):
    return STUDENTS[request.param]()


def learned(student, texts, labels, options=3):
    return student.fit(student.see(texts), Answers(labels), options, lambda share: None)


def decided(table, texts):
    vectors = encode(texts) if table.kind == "encoder" else [None] * len(texts)
    return [table.decide(text, vector) for text, vector in zip(texts, vectors, strict=True)]


def tops(verdicts):
    return [int(np.argmax(verdict.probabilities)) for verdict in verdicts]


def test_a_student_learns_what_its_examples_show(student):
    fitted = learned(student, *examples((40, 40, 40)))
    texts, labels = examples((30, 30, 30), seed=1)

    verdicts = decided(fitted.table, texts)

    assert np.mean(np.array(tops(verdicts)) == labels) > 0.95
    assert fitted.table.kind == student.kind
    assert fitted.table.size == 3
    assert fitted.table.missing == ()


def test_a_rehearsal_has_a_verdict_per_example_in_their_order(student):
    texts, labels = examples((40, 40, 40))
    mixed = np.random.default_rng(0).permutation(len(texts))

    fitted = learned(student, [texts[i] for i in mixed], labels[mixed])

    assert np.mean(np.array(tops(fitted.rehearsal)) == labels[mixed]) > 0.9
    assert all(math.isclose(sum(verdict.probabilities), 1.0, abs_tol=1e-9) for verdict in fitted.rehearsal)


def test_a_student_learns_distributions_as_they_are(student):
    texts, labels = examples((60, 60, 60))
    soft = np.full((len(texts), 3), 0.2, np.float32)
    soft[np.arange(len(texts)), labels] = 0.6

    fitted = student.fit(student.see(texts), Answers(labels, soft), 3, lambda share: None)
    said = np.array([verdict.probabilities for verdict in decided(fitted.table, texts)])

    assert np.array_equal(said.argmax(1), labels)
    # The temperature is fitted to the chosen options alone, so rivals keep their order and not their size.
    rivals = np.sort(said, 1)[:, :2]
    assert np.median(rivals[:, 0] / rivals[:, 1]) > 0.7


def test_sorted_features_teach_the_same(student):
    texts, labels = examples((20, 20, 20))
    seen = student.see(texts)
    in_order = Seen([np.sort(each) for each in seen.features], seen.vectors)

    one, other = (student.fit(each, Answers(labels), 3, lambda share: None) for each in (seen, in_order))

    assert one.table.digest == other.table.digest
    assert one.rehearsal == other.rehearsal


def test_a_rehearsal_of_noise_is_no_better_than_chance(student):
    texts, _ = examples((70, 70, 70))
    labels = np.random.default_rng(0).integers(0, 2, len(texts))

    fitted = learned(student, texts, labels, options=2)

    assert 0.35 < np.mean(np.array(tops(fitted.rehearsal)) == labels) < 0.65


def test_copies_do_not_rehearse_each_other(student):
    texts, _ = examples((20, 20, 20))
    labels = np.random.default_rng(0).integers(0, 2, len(texts))

    fitted = learned(student, texts * 4, np.tile(labels, 4), options=2)

    assert np.mean(np.array(tops(fitted.rehearsal)) == np.tile(labels, 4)) < 0.75


def test_the_order_of_the_examples_does_not_matter(student):
    texts, labels = examples((20, 20, 20))
    mixed = np.random.default_rng(0).permutation(len(texts))

    one, other = learned(student, texts, labels), learned(student, [texts[i] for i in mixed], labels[mixed])

    assert one.table.digest == other.table.digest
    assert [one.rehearsal[i] for i in mixed] == other.rehearsal


def test_options_without_examples_are_missing_and_never_likely(student):
    texts, labels = examples((30, 30))

    fitted = learned(student, texts, labels * 2 + 1, options=6)  # options 1 and 3

    assert fitted.table.missing == (0, 2, 4, 5)
    for verdict in (*decided(fitted.table, texts_about(2, 10)), *fitted.rehearsal):
        assert len(verdict.probabilities) == 6
        assert [verdict.probabilities[option] for option in (0, 2, 4, 5)] == [0.0] * 4


def test_an_option_with_a_single_example_is_learned(student):
    texts, labels = examples((30, 30, 1))

    fitted = learned(student, texts, labels)

    assert fitted.table.missing == ()
    assert tops(decided(fitted.table, texts[-1:])) == [2]
    assert all(verdict.probabilities[2] > 0.0 for verdict in fitted.rehearsal)


def test_two_examples_are_enough_to_fit(student):
    texts, labels = examples((1, 1))

    fitted = learned(student, texts, labels, options=2)

    assert tops(decided(fitted.table, texts)) == [0, 1]
    assert len(fitted.rehearsal) == 2


def test_examples_of_one_option_are_refused(student):
    texts, labels = examples((10,))

    with pytest.raises(InvalidRequest, match="at least two options") as caught:
        learned(student, texts, labels)

    assert caught.value.problems[0].loc == ("body", "examples")
    assert pickle.loads(pickle.dumps(caught.value)).problems == caught.value.problems


def test_examples_of_one_text_are_refused(student):
    with pytest.raises(InvalidRequest, match="the same text"):
        learned(student, ["lost card", "Lost  card"], np.array([0, 1]))


def test_empty_and_foreign_texts_are_fitted_on_and_never_answered(student):
    texts, labels = examples((20, 20))
    texts += ["", "\x00", "xyzzy plugh"]

    fitted = learned(student, texts, np.append(labels, [0, 1, 1]), options=2)

    assert all(math.isnan(verdict.confidence) for verdict in fitted.rehearsal[-3:])
    assert all(math.isnan(verdict.confidence) for verdict in decided(fitted.table, texts[-3:]))
    assert not any(math.isnan(verdict.confidence) for verdict in fitted.rehearsal[:-3])


def test_words_that_no_example_has_count_as_unknown():
    texts, labels = examples((20, 20))
    fitted = learned(StaticStudent(static_vectors()), texts, labels, options=2)

    assert math.isnan(fitted.table.decide("street city house moved").confidence)


def test_progress_rises_to_one(student):
    told: list[float] = []

    texts, labels = examples((10, 10, 10))
    student.fit(student.see(texts), Answers(labels), 3, told.append)

    assert told == sorted(told)
    assert 0.0 < told[0] < told[-1] == 1.0


def test_a_table_needs_nothing_but_its_bytes(student):
    fitted = learned(student, *examples((20, 20, 20)))
    texts = texts_about(1, 10, seed=5)

    again = Table.of(fitted.table.to_bytes())

    assert decided(again, texts) == decided(fitted.table, texts)
    assert again.student == ("encoder digest" if student.kind == "encoder" else "")


def test_a_compiled_table_that_strays_from_its_student_is_refused(student, monkeypatch):
    monkeypatch.setattr(compiling, "PARITY", 1e-9)

    with pytest.raises(AssertionError, match="from the fitted one"):
        learned(student, *examples((20, 20, 20)))


def test_scores_are_calibrated_so_that_sure_answers_are_right_as_often_as_they_say(student):
    texts, labels = examples((100, 100, 100))
    rng = np.random.default_rng(0)
    noisy = np.where(rng.random(len(labels)) < 0.2, rng.integers(0, 3, len(labels)), labels)

    fitted = learned(student, texts, noisy)

    said = np.mean([max(verdict.probabilities) for verdict in fitted.rehearsal])
    right = np.mean(np.array(tops(fitted.rehearsal)) == noisy)
    assert abs(said - right) < 0.08
