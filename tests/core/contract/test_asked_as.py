"""When two questions are the same one, however they are spelled."""

import pytest

from core.contract.questions import asked_as

CHOICE = {"type": "choice", "instructions": "Which?", "criteria": {"a": None, "b": "text"}}
NOUL = {"type": "noul", "instructions": "Is it?"}


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (CHOICE, dict(reversed(CHOICE.items()))),
        (CHOICE, CHOICE | {"note": "nobody reads this"}),
        (NOUL, NOUL | {"criteria": None}),
        (NOUL, NOUL | {"criteria": {"maybe": "nobody reads this"}}),
        (NOUL | {"criteria": {"true": "x", "false": "y"}}, NOUL | {"criteria": {"false": "y", "true": "x"}}),
        (
            {"type": "choice", "criteria": {"a": None}},
            {"type": "choice", "instructions": None, "criteria": {"a": None}},
        ),
    ],
)
def test_spellings_of_one_question_are_one_question(one, other):
    assert asked_as(one) == asked_as(other)


@pytest.mark.parametrize(
    "other",
    [
        CHOICE | {"criteria": {"b": "text", "a": None}},
        CHOICE | {"criteria": {"a": "", "b": "text"}},
        CHOICE | {"criteria": {"a": None}},
        CHOICE | {"instructions": ""},
        CHOICE | {"type": "score"},
    ],
)
def test_another_order_option_description_or_instruction_is_another_question(other):
    assert asked_as(CHOICE) != asked_as(other)


@pytest.mark.parametrize("raw", [None, 1, "text", []])
def test_what_is_no_question_is_none(raw):
    assert asked_as(raw) is None
