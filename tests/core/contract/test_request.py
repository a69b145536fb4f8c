"""A body becomes a request, or every fault of it is named with where it stands."""

import json
from typing import Any

import pytest

from core.contract.questions import Choice, Noul, Score
from core.contract.request import ENOUGH_PROBLEMS, NOT_IN_THE_KEY, Contract, parse
from core.errors import InvalidRequest, MalformedBody, StateTooLong, UnknownModel, UnsupportedFeature

CONTRACT = Contract(models=("jev-latest", "tiny-1"))
NOUL = {"type": "noul", "instructions": "Is it so?"}


def body(**changes: Any) -> bytes:
    members = {"model": "jev-latest", "state": "some text", "questions": {"q": NOUL}} | changes
    return json.dumps({name: value for name, value in members.items() if value is not ...}).encode()


def problems(raw: bytes, contract: Contract = CONTRACT) -> list[tuple[tuple[str | int, ...], str]]:
    with pytest.raises(InvalidRequest) as refused:
        parse(raw, contract)
    return [(problem.loc, problem.type) for problem in refused.value.problems]


class TestTheBody:
    @pytest.mark.parametrize("raw", [b"[]", b'"text"', b"1", b"null", b"true"])
    def test_a_body_that_is_no_object_is_refused(self, raw):
        assert problems(raw) == [(("body",), "dict_type")]

    @pytest.mark.parametrize("member", ["model", "state", "questions"])
    def test_each_of_the_three_members_is_required(self, member):
        assert problems(body(**{member: ...})) == [(("body", member), "missing")]

    def test_all_missing_members_are_named_at_once(self):
        assert problems(b"{}") == [
            (("body", "model"), "missing"),
            (("body", "state"), "missing"),
            (("body", "questions"), "missing"),
        ]

    @pytest.mark.parametrize("model", [None, 1, True, ["jev-latest"], {}])
    def test_a_model_that_is_no_string_is_refused(self, model):
        assert problems(body(model=model)) == [(("body", "model"), "string_type")]

    @pytest.mark.parametrize("model", ["jev-latest", "tiny-1"])
    def test_every_served_name_is_accepted_and_kept(self, model):
        assert parse(body(model=model), CONTRACT).model == model

    @pytest.mark.parametrize("model", ["JEV-LATEST", "jev", "", " jev-latest", "jev-latest\n"])
    def test_any_other_name_is_unknown_because_names_are_case_sensitive(self, model):
        with pytest.raises(UnknownModel, match="use one of jev-latest, tiny-1"):
            parse(body(model=model), CONTRACT)

    def test_a_broken_contract_is_reported_before_an_unknown_model(self):
        assert problems(body(model="nobody", state=1)) == [(("body", "state"), "string_type")]

    def test_malformed_json_is_another_error(self):
        with pytest.raises(MalformedBody):
            parse(body()[:-1], CONTRACT)

    @pytest.mark.parametrize(
        "extra", [{"x_trace_id": "jevcompat", "seed": 7}, {"stream": False}, {"assets": {}}]
    )
    def test_members_that_ask_for_nothing_here_are_accepted(self, extra):
        assert parse(body(**extra), CONTRACT).questions == {"q": Noul("Is it so?", None, None)}

    @pytest.mark.parametrize("extra", [{"stream": True}, {"assets": {"a": {"type": "image"}}}])
    def test_members_that_ask_for_what_is_not_done_here_are_refused(self, extra):
        with pytest.raises(UnsupportedFeature, match=f"^{next(iter(extra))} is not supported"):
            parse(body(**extra), CONTRACT)


class TestTheState:
    @pytest.mark.parametrize("state", ["", "text", "  ", "é🙂\u2028"])
    def test_a_text_is_kept_as_it_is(self, state):
        assert parse(body(state=state), CONTRACT).state == state

    @pytest.mark.parametrize(
        ("state", "text"),
        [([], "[]"), ({}, "{}"), ({"b": [1, 1.0, None], "a": "é"}, '{"b":[1,1.0,null],"a":"é"}')],
    )
    def test_a_structured_state_is_read_as_compact_json_in_its_order(self, state, text):
        assert parse(body(state=state), CONTRACT).state == text

    @pytest.mark.parametrize("state", [None, 1, 1.5, True])
    def test_anything_else_is_refused(self, state):
        assert problems(body(state=state)) == [(("body", "state"), "string_type")]

    @pytest.mark.parametrize(
        ("state", "accepted"), [("x" * 100, True), ("x" * 101, False), (["x" * 97], False)]
    )
    def test_a_state_may_be_as_long_as_the_limit_counted_as_the_engine_reads_it(self, state, accepted):
        contract = Contract(CONTRACT.models, max_state_chars=100)
        if accepted:
            assert parse(body(state=state), contract).state == state
            return

        with pytest.raises(StateTooLong) as refused:
            parse(body(state=state), contract)

        assert (refused.value.chars, refused.value.limit_chars) == (101, 100)

    def test_characters_are_counted_and_not_bytes(self):
        assert len(parse(body(state="🙂" * 100), Contract(CONTRACT.models, max_state_chars=100)).state) == 100


class TestTheQuestions:
    @pytest.mark.parametrize("questions", [None, [], "q", 1])
    def test_questions_that_are_no_object_are_refused(self, questions):
        assert problems(body(questions=questions)) == [(("body", "questions"), "dict_type")]

    def test_no_question_at_all_is_refused(self):
        assert problems(body(questions={})) == [(("body", "questions"), "too_short")]

    @pytest.mark.parametrize("count", [1, 64, 65, 512])
    def test_as_many_questions_as_the_limit_are_read_in_their_order(self, count):
        ids = [f"q{i}" for i in range(count)][::-1]

        assert list(parse(body(questions=dict.fromkeys(ids, NOUL)), CONTRACT).questions) == ids

    def test_one_question_more_is_refused(self):
        assert problems(body(questions={f"q{i}": NOUL for i in range(513)})) == [
            (("body", "questions"), "too_long")
        ]

    @pytest.mark.parametrize(
        "name",
        [
            "ticket-1",
            "q.2",
            "with space",
            " ",
            "질문",
            "🎯",
            "Q 🙂",
            "x_y_z",
            "e\u0301",
            "é",
            "__proto__",
            "\x00",
        ],
    )
    def test_ids_are_opaque_and_kept_byte_for_byte(self, name):
        assert list(parse(body(questions={name: NOUL}), CONTRACT).questions) == [name]

    def test_the_empty_id_is_refused(self):
        assert problems(body(questions={"": NOUL})) == [(("body", "questions"), "string_too_short")]

    def test_mixed_types_stand_in_one_request(self):
        asked = parse(
            body(
                questions={
                    "z": {"type": "score", "criteria": ["low", "high"]},
                    "a": {"type": "choice", "criteria": {"x": None}},
                    "m": NOUL,
                }
            ),
            CONTRACT,
        )

        assert list(asked.questions.items()) == [
            ("z", Score(None, ("low", "high"), ("low", "high"))),
            ("a", Choice(None, ("x",), (None,))),
            ("m", Noul("Is it so?", None, None)),
        ]

    def test_problems_of_several_questions_are_named_together(self):
        found = problems(body(questions={"one": 1, "ok": NOUL, "two": {"type": "boolean"}, "three": {}}))

        assert found == [
            (("body", "questions", "one"), "dict_type"),
            (("body", "questions", "two"), "union_tag_invalid"),
            (("body", "questions", "three"), "union_tag_not_found"),
        ]

    def test_reading_stops_when_enough_is_wrong(self):
        found = problems(body(questions={f"q{i}": 1 for i in range(500)}))

        assert len(found) == ENOUGH_PROBLEMS


class TestTheCompactForm:
    def test_it_is_the_body_without_spaces_in_its_order(self):
        questions = b'{"q" :{"type":"noul","instructions": "?"}}'
        spaced = b'{ "state" : "a\\u0062" ,\n"questions":' + questions + b', "model":"jev-latest"\t}'

        assert parse(spaced, CONTRACT).compact == (
            b'{"state":"ab","questions":{"q":{"type":"noul","instructions":"?"}},"model":"jev-latest"}'
        )

    def test_members_nobody_knows_are_a_part_of_it(self):
        assert b'"x_nonce":1' in parse(body(x_nonce=1), CONTRACT).compact
        assert b'"stray":1' in parse(body(questions={"q": NOUL | {"stray": 1}}), CONTRACT).compact

    @pytest.mark.parametrize("name", NOT_IN_THE_KEY)
    def test_members_that_make_no_other_request_are_no_part_of_it(self, name):
        assert parse(body(**{name: "call-1"}), CONTRACT).compact == parse(body(), CONTRACT).compact

    @pytest.mark.parametrize("name", NOT_IN_THE_KEY)
    def test_they_are_left_out_at_the_top_alone(self, name):
        inside = parse(body(state={name: "call-1"}), CONTRACT)

        assert inside.compact != parse(body(state={}), CONTRACT).compact
        assert name in inside.state
