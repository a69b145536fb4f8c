"""Which texts stand for an option, for a yes and for a no."""

import pytest

from core.contract.questions import Choice, Noul, Score
from core.engines.texts import Sides, option_texts, said, sides


def test_an_option_is_its_name_in_words_with_its_description():
    question = Choice(
        None,
        ("card_arrival", "refund", " ", "é_ü"),
        ("when a card comes", None, "only described", "\t"),
    )

    assert option_texts(question) == ("card arrival: when a card comes", "refund", "only described", "é ü")


def test_a_level_is_its_own_text():
    assert option_texts(Score("how?", ("can_wait", ""), ("can_wait", ""))) == ("can_wait", "")


@pytest.mark.parametrize(
    ("question", "expected"),
    [
        (Noul("due?", None, None), Sides("due?", None)),
        (Noul("due?", "paid twice", None), Sides("due?: paid twice", None)),
        (Noul(None, "paid twice", None), Sides("paid twice", None)),
        (Noul(None, None, "paid once"), Sides(None, "paid once")),
        (Noul("due?", None, "paid once"), Sides("due?", "paid once")),
        (Noul(None, "paid twice", "paid once"), Sides("paid twice", "paid once")),
        (Noul("due?", "paid twice", "paid once"), Sides("due?: paid twice", "paid once")),
    ],
)
def test_a_yes_and_a_no_are_near_to_what_the_question_says_of_them(question, expected):
    assert sides(question) == expected


@pytest.mark.parametrize("blank", ["", " ", "\n\t "])
def test_a_blank_text_says_nothing(blank):
    assert said(blank) is None
    assert sides(Noul("due?", blank, blank)) == Sides("due?", None)
    assert sides(Noul("due?", blank, "no")) == Sides("due?", "no")
    assert sides(Noul(blank, blank, "no")) == Sides(None, "no")
    assert sides(Noul(blank, "yes", blank)) == Sides("yes", None)
