"""What may be asked for when a task is registered, and what a refusal says."""

from typing import Any

import pytest

from core.errors import InvalidRequest
from core.tasks.record import CertifySettings, FastTableSettings
from core.tasks.registration import ENOUGH_PROBLEMS, read_recertification, read_registration
from tests.core.tasks.tables import CHOICE, record

NOUL = {"type": "noul", "instructions": "Is it urgent?"}
SCORE = {"type": "score", "criteria": ["calm", "cross", "furious"]}


def example(state: Any = "I was charged twice", answer: Any = "billing", question: Any = CHOICE, **members):
    return {"request": {"state": state, "questions": {"team": question}} | members, "answer": answer}


def body(*examples: Any, **members: Any) -> dict[str, Any]:
    return {"id": "support", "examples": [*examples] or [example()]} | members


def problems(value: Any, **limits: int) -> dict[str, str]:
    with pytest.raises(InvalidRequest) as caught:
        read_registration(value, **limits)
    return {".".join(map(str, one.loc[1:])): one.msg for one in caught.value.problems}


def test_what_is_left_out_has_its_default():
    found = read_registration(body())

    assert found.certify == CertifySettings(0.05, 0.1, 0.5, None, 0)
    assert found.fast_table == FastTableSettings("static", "english", 0.1)
    assert (found.id, found.question_id, found.context) == ("support", "team", None)
    assert found.raw_question == CHOICE
    assert found.certify_examples is None
    assert (found.examples.texts, found.examples.labels) == (("I was charged twice",), (0,))


def test_everything_can_be_said():
    found = read_registration(
        body(
            context="You route mail.",
            certify={
                "alpha": 0.02,
                "delta": 0.05,
                "holdout": 0.3,
                "min_examples": 200,
                "examples": [example("Sell me one", "sales")],
            },
            fast_table={"kind": "auto", "static_model": "multilingual", "min_saving": 0},
        )
    )

    assert found.context == "You route mail."
    assert found.certify == CertifySettings(0.02, 0.05, 0.3, 200, 0)
    assert found.certify_examples is not None
    assert found.certify_examples.labels == (1,)
    assert found.fast_table == FastTableSettings("auto", "multilingual", 0.0)


@pytest.mark.parametrize("off", [False, None])
def test_certification_and_table_can_be_declined(off):
    found = read_registration(body(certify=off, fast_table=off))

    assert (found.certify, found.fast_table) == (None, None)


def test_a_number_is_a_name_too():
    assert read_registration(body(id=7)).id == "7"


@pytest.mark.parametrize(
    ("question", "answer", "label"),
    [
        (CHOICE, "sales", 1),
        (NOUL, True, 0),
        (NOUL, False, 1),
        (NOUL, "yes", 0),
        (NOUL, "no", 1),
        (SCORE, 2, 2),
        (SCORE, "0", 0),
    ],
)
def test_an_answer_names_an_option_as_its_question_does(question, answer, label):
    assert read_registration(body(example("x", answer, question))).examples.labels == (label,)


@pytest.mark.parametrize(
    ("question", "answer", "wanted"),
    [
        (CHOICE, "Sales", "the name of an option"),
        (CHOICE, 0, "the name of an option"),
        (CHOICE, None, "the name of an option"),
        (NOUL, "true", 'true, false, "yes" or "no"'),
        (NOUL, 1, 'true, false, "yes" or "no"'),
        (SCORE, 3, "a level's index, 0 to 2"),
        (SCORE, True, "a level's index, 0 to 2"),
        (SCORE, 1.0, "a level's index, 0 to 2"),
        (SCORE, "calm", "a level's index, 0 to 2"),
    ],
)
def test_any_other_answer_is_refused_with_what_would_be_one(question, answer, wanted):
    assert problems(body(example("x", answer, question))) == {"examples.0.answer": f"must be {wanted}"}


def test_a_state_that_is_json_is_the_text_that_a_request_would_have():
    found = read_registration(body(example({"b": 1, "a": [2]})))

    assert found.examples.texts == (read_registration(body(example({"b": 1, "a": [2]}))).examples.texts)
    assert '"b"' in found.examples.texts[0]


def test_the_same_question_may_be_spelt_differently_from_example_to_example():
    spelt = {"criteria": CHOICE["criteria"], "instructions": CHOICE["instructions"], "type": "choice"}

    assert len(read_registration(body(example(), example("y", "sales", spelt))).examples.texts) == 2


@pytest.mark.parametrize(
    "question",
    [
        CHOICE | {"criteria": {"sales": None, "billing": None}},
        CHOICE | {"criteria": {"billing": None, "sales": None, "other": None}},
        CHOICE | {"instructions": "Which?"},
        NOUL,
    ],
    ids=["order", "options", "instructions", "type"],
)
def test_another_question_among_the_examples_is_refused(question):
    found = problems(body(example(), example("y", "sales", question)))

    assert list(found) == ["examples.1.request.questions.team"]


@pytest.mark.parametrize(
    ("value", "at"),
    [
        ([], ""),
        ({"examples": [example()]}, "id"),
        ({"id": "support"}, "examples"),
        (body() | {"examples": {}}, "examples"),
        (body() | {"examples": []}, "examples"),
        (body(id=""), "id"),
        (body(id=None), "id"),
        (body(id=True), "id"),
        (body(id="a/b"), "id"),
        (body(id="a@b"), "id"),
        (body(id="a\nb"), "id"),
        (body(id="x" * 129), "id"),
        (body(adapter="a"), "adapter"),
        (body(context=3), "context"),
        (body(context="x" * 100_001), "context"),
        (body(example(state=None)), "examples.0.request.state"),
        (body(example(state=3)), "examples.0.request.state"),
        (body("x"), "examples.0.request.questions"),
        (body(example(), "x"), "examples.1"),
        (body(example(adapter="a")), "examples.0.request.adapter"),
        (body(example(over_limit="cut")), "examples.0.request.over_limit"),
        (body(example(images=["x"])), "examples.0.request.images"),
        (body(example(question={"type": "rank"})), "examples.0.request.questions.team"),
        (body(certify=3), "certify"),
        (body(certify={"aplha": 0.1}), "certify.aplha"),
        (body(certify={"alpha": 0}), "certify.alpha"),
        (body(certify={"alpha": 1}), "certify.alpha"),
        (body(certify={"alpha": True}), "certify.alpha"),
        (body(certify={"delta": "0.1"}), "certify.delta"),
        (body(certify={"holdout": 1.5}), "certify.holdout"),
        (body(certify={"min_examples": 0}), "certify.min_examples"),
        (body(certify={"min_examples": 1.5}), "certify.min_examples"),
        (body(certify={"level_error": 1}), "certify.level_error"),
        (body(certify={"level_error": 2}), "certify.level_error"),
        (body(certify={"examples": []}), "certify.examples"),
        (body(certify={"examples": [example(answer="x")]}), "certify.examples.0.answer"),
        (body(fast_table={"kind": "magic"}), "fast_table.kind"),
        (body(fast_table={"static_model": ""}), "fast_table.static_model"),
        (body(fast_table={"min_saving": 1}), "fast_table.min_saving"),
        (body(fast_table={"learn": 1}), "fast_table.learn"),
        (body(fast_table="static"), "fast_table"),
    ],
)
def test_what_is_wrong_is_refused_with_its_place(value, at):
    assert at in problems(value)


def test_a_level_error_is_for_scores():
    found = read_registration(body(example("x", 1, SCORE), certify={"level_error": 1}))

    assert found.certify is not None
    assert found.certify.level_error == 1


def test_two_questions_in_an_example_are_refused():
    two = {"request": {"state": "x", "questions": {"a": CHOICE, "b": NOUL}}, "answer": "billing"}

    assert "exactly one question is needed, there is 2" in problems(body(two)).values()


def test_another_id_for_the_question_is_refused():
    other = {"request": {"state": "x", "questions": {"squad": CHOICE}}, "answer": "billing"}

    assert "'team'" in problems(body(example(), other))["examples.1.request.questions"]


def test_several_problems_are_told_at_once_and_very_many_are_not():
    found = problems(body(*[example(answer="x")] * 1_000))

    assert ENOUGH_PROBLEMS <= len(found) <= 2 * ENOUGH_PROBLEMS


def test_limits_are_told_with_both_numbers():
    assert problems(body(*[example()] * 3), max_examples=2) == {"examples": "there are 3 and 2 are allowed"}
    assert problems(body(example("x" * 11)), max_state_chars=10) == {
        "examples.0.request.state": "has 11 characters and 10 are allowed"
    }


class TestCertifyingAnew:
    def test_keeps_what_it_does_not_name(self):
        before = record(certify=CertifySettings(0.02, 0.05, 0.3, 200))

        found = read_recertification({"examples": [example()], "alpha": 0.1}, before)

        assert found.certify == CertifySettings(0.1, 0.05, 0.3, 200)

    @pytest.mark.parametrize(
        ("fields", "why"),
        [({"certify": None}, "without certification"), ({"table": None}, "without a table")],
    )
    def test_of_a_task_that_has_nothing_to_certify_is_refused(self, fields, why):
        with pytest.raises(InvalidRequest, match=why):
            read_recertification({"examples": [example()]}, record(**fields))

    @pytest.mark.parametrize(
        "value",
        [
            {},
            {"examples": []},
            {"examples": [example(question=NOUL)]},
            {"examples": [example()], "holdout": 0.5},
        ],
    )
    def test_of_something_else_is_refused(self, value):
        with pytest.raises(InvalidRequest):
            read_recertification(value, record())
