"""Which forms of a question are accepted, what they are read as, and where a fault is said to be."""

from typing import Any

import pytest

from core.contract.questions import MAX_LEVELS, MAX_OPTIONS, Choice, Noul, Question, QuestionReader, Score

AT = ("body", "questions", "q")


def read(raw: Any) -> Question:
    reader = QuestionReader()
    question = reader.read("q", raw)
    assert reader.problems == []
    assert question is not None
    return question


def refused(raw: Any) -> list[tuple[tuple[str | int, ...], str]]:
    reader = QuestionReader()
    assert reader.read("q", raw) is None
    return [
        (problem.loc[len(AT) :], problem.type) for problem in reader.problems if problem.loc[: len(AT)] == AT
    ]


class TestTheType:
    @pytest.mark.parametrize("raw", [None, "noul", 1, [], True])
    def test_a_question_that_is_no_object_is_refused(self, raw):
        assert refused(raw) == [((), "dict_type")]

    @pytest.mark.parametrize("raw", [{}, {"instructions": "?"}, {"type": None}])
    def test_a_missing_type_is_refused(self, raw):
        assert refused(raw) == [((), "union_tag_not_found")]

    @pytest.mark.parametrize("kind", ["boolean", "box", "Noul", "NOUL", "", 1, True, ["noul"], {"noul": 1}])
    def test_any_other_type_is_refused(self, kind):
        assert refused({"type": kind, "instructions": "?", "criteria": {"a": None}}) == [
            ((), "union_tag_invalid")
        ]


KINDS = {
    "noul": {"type": "noul", "criteria": {"true": "it is so"}},
    "choice": {"type": "choice", "criteria": {"a": None, "b": None}},
    "score": {"type": "score", "criteria": ["low", "high"]},
}


@pytest.mark.parametrize("raw", KINDS.values(), ids=KINDS)
class TestInstructions:
    @pytest.mark.parametrize(
        ("instructions", "text"),
        [
            ("Is it so?", "Is it so?"),
            ("", ""),
            (["a", "b"], '["a","b"]'),
            ({"text": "a", "n": 1.0}, '{"text":"a","n":1.0}'),
            ([], "[]"),
            (None, None),
        ],
    )
    def test_texts_objects_arrays_and_null_are_accepted(self, raw, instructions, text):
        assert read(raw | {"instructions": instructions}).instructions == text

    def test_they_may_be_absent(self, raw):
        assert read(raw).instructions is None

    @pytest.mark.parametrize("instructions", [1, 0, 1.5, True, False])
    def test_numbers_and_booleans_are_refused(self, raw, instructions):
        assert refused(raw | {"instructions": instructions}) == [
            ((raw["type"], "instructions", "str"), "string_type")
        ]

    def test_stray_members_of_a_question_are_ignored(self, raw):
        assert read(raw | {"x_note": 1, "weight": [2]}) == read(raw)


class TestNoul:
    @pytest.mark.parametrize(
        ("members", "question"),
        [
            ({"instructions": "?"}, Noul("?", None, None)),
            ({"instructions": "?", "criteria": None}, Noul("?", None, None)),
            ({"instructions": "?", "criteria": {}}, Noul("?", None, None)),
            ({"instructions": "?", "criteria": {"true": "t", "false": "f"}}, Noul("?", "t", "f")),
            ({"instructions": "?", "criteria": {"true": "t"}}, Noul("?", "t", None)),
            ({"instructions": "?", "criteria": {"false": "f"}}, Noul("?", None, "f")),
            (
                {"instructions": "?", "criteria": {"true": {"a": 1}, "false": ["b"]}},
                Noul("?", '{"a":1}', '["b"]'),
            ),
            ({"instructions": "?", "criteria": {"true": None, "false": "f"}}, Noul("?", None, "f")),
            ({"instructions": "?", "criteria": {"maybe": "x"}}, Noul("?", None, None)),
            ({"criteria": {"true": "t", "false": "f"}}, Noul(None, "t", "f")),
            ({"criteria": {"false": "f"}}, Noul(None, None, "f")),
            ({"instructions": "", "criteria": {"true": "t"}}, Noul("", "t", None)),
        ],
    )
    def test_accepted_forms(self, members, question):
        assert read({"type": "noul"} | members) == question

    @pytest.mark.parametrize(
        "members",
        [
            {},
            {"instructions": None},
            {"instructions": ""},
            {"instructions": " \n"},
            {"criteria": {}},
            {"criteria": {"maybe": "x"}},
            {"criteria": {"true": None, "false": ""}},
        ],
    )
    def test_a_noul_that_asks_nothing_is_refused(self, members):
        assert refused({"type": "noul"} | members) == [(("noul",), "value_error")]

    @pytest.mark.parametrize("criteria", ["yes if so", ["t", "f"], 1, True])
    def test_criteria_that_are_no_object_are_refused(self, criteria):
        raw = {"type": "noul", "instructions": "?", "criteria": criteria}

        assert refused(raw) == [(("noul", "criteria"), "dict_type")]

    @pytest.mark.parametrize("side", ["true", "false"])
    @pytest.mark.parametrize("described", [1, 0.5, True])
    def test_a_side_that_is_a_number_or_a_boolean_is_refused(self, side, described):
        raw = {"type": "noul", "instructions": "?", "criteria": {side: described}}

        assert refused(raw) == [(("noul", "criteria", side, "str"), "string_type")]

    def test_all_faults_of_one_question_are_named(self):
        raw = {"type": "noul", "instructions": 1, "criteria": {"true": 2, "false": 3}}

        assert [loc for loc, _ in refused(raw)] == [
            ("noul", "instructions", "str"),
            ("noul", "criteria", "true", "str"),
            ("noul", "criteria", "false", "str"),
        ]


class TestChoice:
    @pytest.mark.parametrize("count", [1, 2, 26, 27, 64, 128, 255])
    def test_no_option_is_dropped_up_to_the_limit(self, count):
        options = {f"option {i}": None for i in range(count)}

        question = read({"type": "choice", "criteria": options})

        assert isinstance(question, Choice)
        assert question.options == tuple(options)
        assert question.size == len(question.descriptions) == count

    @pytest.mark.parametrize(
        ("count", "kind"), [(0, "too_short"), (MAX_OPTIONS + 1, "too_long"), (5_000, "too_long")]
    )
    def test_none_and_too_many_options_are_refused(self, count, kind):
        raw = {"type": "choice", "criteria": {str(i): None for i in range(count)}}

        assert refused(raw) == [(("choice", "criteria"), kind)]

    def test_names_are_opaque_and_kept_byte_for_byte_in_their_order(self):
        names = [
            "환불 요청",
            "🙂 기타",
            "e\u0301",
            "é",
            "É",
            "",
            " ",
            " a ",
            "a",
            "\x00",
            "ﬁ",
            "fi",
            "true",
            "10",
            "9",
        ]

        question = read({"type": "choice", "criteria": dict.fromkeys(names)})

        assert isinstance(question, Choice)
        assert list(question.options) == names

    def test_descriptions_may_be_texts_null_objects_and_arrays(self):
        question = read(
            {"type": "choice", "criteria": {"a": "text", "b": None, "c": {"x": 1}, "d": [], "e": ""}}
        )

        assert question == Choice(None, ("a", "b", "c", "d", "e"), ("text", None, '{"x":1}', "[]", ""))

    @pytest.mark.parametrize("description", [1, 0.0, True, False])
    def test_a_description_that_is_a_number_or_a_boolean_is_refused_by_name(self, description):
        raw = {"type": "choice", "criteria": {"fine": None, "bad": description}}

        assert refused(raw) == [(("choice", "criteria", "bad", "str"), "string_type")]

    @pytest.mark.parametrize(
        ("members", "kind"),
        [
            ({}, "missing"),
            ({"criteria": None}, "dict_type"),
            ({"criteria": ["a"]}, "dict_type"),
            ({"criteria": "a"}, "dict_type"),
        ],
    )
    def test_criteria_that_are_absent_or_no_object_are_refused(self, members, kind):
        assert refused({"type": "choice", "instructions": "?"} | members) == [(("choice", "criteria"), kind)]


class TestScore:
    @pytest.mark.parametrize("count", [1, 2, 3, 5, 10])
    def test_no_level_is_dropped_up_to_the_limit(self, count):
        levels = [f"level {i}" for i in range(count)]

        question = read({"type": "score", "criteria": levels})

        assert question == Score(None, tuple(levels), tuple(levels))
        assert question.size == count

    @pytest.mark.parametrize(
        ("count", "kind"), [(0, "too_short"), (MAX_LEVELS + 1, "too_long"), (33, "too_long")]
    )
    def test_none_and_too_many_levels_are_refused(self, count, kind):
        assert refused({"type": "score", "criteria": ["x"] * count}) == [(("score", "criteria"), kind)]

    def test_a_structured_level_is_read_as_text_and_shown_as_it_was_sent(self):
        levels = [{"label": "Calm"}, ["very", "angry"], ""]

        question = read({"type": "score", "criteria": levels})

        assert question == Score(None, ('{"label":"Calm"}', '["very","angry"]', ""), tuple(levels))

    def test_equal_levels_are_two_levels(self):
        assert read({"type": "score", "criteria": ["same", "same"]}).size == 2

    @pytest.mark.parametrize(
        ("level", "loc"), [(None, (1,)), (1, (1, "str")), (True, (1, "str")), (0.5, (1, "str"))]
    )
    def test_a_level_that_is_no_text_is_refused_once_by_its_index(self, level, loc):
        raw = {"type": "score", "criteria": ["Calm", level]}

        assert refused(raw) == [(("score", "criteria", *loc), "string_type")]

    @pytest.mark.parametrize(
        ("members", "kind"),
        [
            ({}, "missing"),
            ({"criteria": None}, "list_type"),
            ({"criteria": {"0": "a", "1": "b"}}, "list_type"),
            ({"criteria": "a"}, "list_type"),
        ],
    )
    def test_criteria_that_are_absent_or_no_array_are_refused(self, members, kind):
        assert refused({"type": "score"} | members) == [(("score", "criteria"), kind)]
