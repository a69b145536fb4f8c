"""Whether a decision answers the questions of a request."""

import orjson
import pytest

from core.cache.shape import answers_fit, same_shape
from core.contract.answers import write_answers
from core.contract.questions import Choice, Noul, Question, Score

YES_NO = Noul("is it?", None, None)
ABC = Choice(None, ("a", "b", "c"), (None, None, None))
LEVELS = Score(None, ("low", "high"), ("low", "high"))
QUESTIONS: dict[str, Question] = {"n": YES_NO, "c": ABC, "s": LEVELS}


def answers(questions):
    written, _ = write_answers(questions, [[1 / q.size] * q.size for q in questions.values()])
    return written


def test_answers_as_they_are_written_fit_their_questions():
    assert answers_fit(answers(QUESTIONS), QUESTIONS)


@pytest.mark.parametrize(
    "asked",
    [
        {},
        {"n": YES_NO, "c": ABC},
        {**QUESTIONS, "more": YES_NO},
        {"c": ABC, "n": YES_NO, "s": LEVELS},
        {"other": YES_NO, "c": ABC, "s": LEVELS},
        {**QUESTIONS, "n": ABC},
        {**QUESTIONS, "c": YES_NO},
        {**QUESTIONS, "c": LEVELS},
        {**QUESTIONS, "s": ABC},
        {**QUESTIONS, "c": Choice(None, ("a", "c", "b"), (None, None, None))},
        {**QUESTIONS, "c": Choice(None, ("a", "b"), (None, None))},
        {**QUESTIONS, "c": Choice(None, ("a", "b", "C"), (None, None, None))},
        {**QUESTIONS, "c": Choice(None, ("0", "1"), (None, None))},
        {**QUESTIONS, "s": Score(None, ("a", "b", "c"), ("a", "b", "c"))},
    ],
)
def test_answers_to_other_questions_kinds_or_options_do_not_fit(asked):
    assert not answers_fit(answers(QUESTIONS), asked)
    if asked:
        assert not same_shape(answers(QUESTIONS), answers(asked))


def test_answers_in_another_order_do_not_fit():
    one, other = {"a": YES_NO, "b": YES_NO}, {"b": YES_NO, "a": YES_NO}

    assert not answers_fit(answers(one), other)
    assert not same_shape(answers(one), answers(other))


@pytest.mark.parametrize(
    "garbage",
    [
        b"",
        b"[]",
        b"null",
        b'{"n":1,"c":1,"s":1}',
        b'{"n":{},"c":{},"s":{}}',
        b'{"n":{"type":"noul"},"c":[],"s":{}}',
    ],
)
def test_what_is_no_answers_object_fits_nothing(garbage):
    assert not answers_fit(garbage, QUESTIONS)
    assert not same_shape(garbage, answers(QUESTIONS))


def test_answers_with_other_probabilities_have_the_same_shape():
    one = orjson.dumps({"q": {"type": "noul", "noul": 0.9}})
    other = orjson.dumps({"q": {"type": "noul", "noul": 0.1}})

    assert same_shape(one, other)
