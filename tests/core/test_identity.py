"""When two requests are the same: nothing that can move an answer is missing from the key."""

import json
from collections.abc import Mapping
from dataclasses import fields, replace
from inspect import signature
from typing import Any

import pytest
from hypothesis import assume, example, given
from hypothesis import strategies as st

from core.contract.request import NOT_IN_THE_KEY, Contract, parse
from core.contract.strict_json import encode
from core.identity import KEY_BYTES, Identity, keyer
from deployments import schema
from tests.strategies import JSON_VALUES, spellings, typed

CONTRACT = Contract(models=("jev-latest", "other"))
ME = Identity("default", "app")
PARTS = ("tenant", "deployment", "evidence", "contract", "fingerprint", "task")
Parts = tuple[str, str, str | None, str | None, str, str | None]


def key(parts: Parts, compact: bytes = b"{}") -> bytes:
    tenant, deployment, evidence, contract, fingerprint, task = parts
    return keyer(Identity(tenant, deployment, evidence, contract), fingerprint, task)(compact)


def key_of_body(body: bytes) -> bytes:
    return keyer(ME, "engine-1")(parse(body, CONTRACT).compact)


def test_the_format_of_the_key_is_pinned():
    identity = Identity("tenant-a", "default", evidence="rev-7", contract=None)

    key_of = keyer(identity, "fingerprint-1", task="spam@2")

    assert (
        key_of(b'{"model":"m","state":"\xc3\xa9","questions":{}}').hex() == "73766b1a4ca20e0b69e0205708255f0b"
    )


def test_a_key_function_gives_the_same_key_again_and_again():
    key_of = keyer(ME, "engine-1")

    assert key_of(b"[1]") == key_of(b"[1]") == keyer(ME, "engine-1")(b"[1]") != key_of(b"[2]")
    assert len(key_of(b"")) == KEY_BYTES


TEXTS = st.one_of(st.sampled_from(["", "a", "b", "ab", "-", "+", "+a", "\x00"]), st.text(max_size=6))
LONE = st.sampled_from(["\ud800", "\udfff", "\ud83d\ude00", "😀"])
OPTIONAL = st.none() | TEXTS | LONE
PARTS_VALUES = st.tuples(TEXTS, TEXTS, OPTIONAL, OPTIONAL, TEXTS, OPTIONAL)


@given(PARTS_VALUES, PARTS_VALUES, st.binary(max_size=6), st.binary(max_size=6))
@example(("ab", "c", None, None, "", None), ("a", "bc", None, None, "", None), b"", b"")
@example(("a", "b", None, "x", "", None), ("a", "b", "x", None, "", None), b"", b"")
@example(("a", "b", None, None, "f", "t"), ("a", "b", None, None, "ft", None), b"", b"")
@example(("a", "b", "\ud83d\ude00", None, "f", None), ("a", "b", "😀", None, "f", None), b"", b"")
def test_two_keys_are_equal_only_when_every_part_is(one, other, body, other_body):
    assert (key(one, body) == key(other, other_body)) == ((one, body) == (other, other_body))


@given(st.data(), st.text("ab-+\x00", min_size=1, max_size=12))
def test_moving_the_border_between_two_parts_makes_another_key(data, whole):
    cuts = st.lists(st.integers(0, len(whole)), min_size=6, max_size=6).map(sorted)
    one, other = data.draw(cuts), data.draw(cuts)
    assume(one != other)

    def split(at: list[int]) -> tuple[Parts, bytes]:
        tenant, deployment, evidence, contract, fingerprint, task, body = (
            whole[start:end] for start, end in zip([0, *at], [*at, len(whole)], strict=True)
        )
        return (tenant, deployment, evidence, contract, fingerprint, task), body.encode()

    assert key(*split(one)) != key(*split(other))


@pytest.mark.parametrize("part", ["evidence", "contract", "task"])
def test_absent_is_not_empty_and_not_the_word_for_it(part):
    at = PARTS.index(part)
    base: list[Any] = ["t", "d", None, None, "f", None]
    keys = {
        key(tuple([*base[:at], value, *base[at + 1 :]])) for value in (None, "", "-", "+", "null", "None")
    }

    assert len(keys) == 6


def test_a_state_that_holds_another_requests_envelope_is_another_request():
    inner = encode({"model": "jev-latest", "state": "x", "questions": {}})

    assert key(("a", "b", None, None, "f", None), inner) != key(
        ("a", "b", None, None, "f", None), encode(inner.decode())
    )


class TestEveryFieldCounts:
    """Keyed by exclusion: a new field needs a rule here, or the suite fails."""

    CHANGES: Mapping[str, tuple[Any, Any]] = {
        "tenant": ("default", "other"),
        "deployment": ("app", "app2"),
        "evidence": (None, "rev-2"),
        "contract": (None, "rev-2"),
        "fingerprint": ("engine-1", "engine-2"),
        "task": (None, "spam@1"),
    }

    def test_every_argument_of_the_key_is_listed(self):
        arguments = set(signature(keyer).parameters) - {"identity"}

        assert {field.name for field in fields(Identity)} | arguments == set(self.CHANGES)

    @pytest.mark.parametrize("name", CHANGES)
    def test_changing_it_alone_makes_another_key(self, name):
        arguments: dict[str, Any] = {"identity": ME, "fingerprint": "engine-1", "task": None}
        _, changed = self.CHANGES[name]
        if name in arguments:
            other = arguments | {name: changed}
        else:
            other = arguments | {"identity": replace(ME, **{name: changed})}

        assert keyer(**arguments)(b"{}") != keyer(**other)(b"{}")

    MEMBERS: Mapping[str, tuple[Any, Any]] = {
        "model": ("jev-latest", "other"),
        "state": ("text", "text "),
        "questions": (
            {"q": {"type": "noul", "instructions": "?"}},
            {"r": {"type": "noul", "instructions": "?"}},
        ),
        "stream": (False, None),
        "assets": ({}, None),
        "seed": (7, 8),
        "x_nonce": ("a", "b"),
        "instructions": ("a", "b"),
        "temperature": (0, 0.0),
    }

    def test_every_documented_member_of_a_body_is_listed(self):
        assert set(schema.DecisionRequest.model_fields) <= set(self.MEMBERS) | set(NOT_IN_THE_KEY)
        assert not set(self.MEMBERS) & set(NOT_IN_THE_KEY)

    @pytest.mark.parametrize("name", MEMBERS)
    def test_changing_a_member_alone_makes_another_key(self, name):
        body = {member: values[0] for member, values in self.MEMBERS.items()}

        keys = {key_of_body(encode(body | {name: value})) for value in self.MEMBERS[name]}
        without = body.keys() - {name} if name not in ("model", "state", "questions") else body.keys()
        keys.add(key_of_body(encode({member: body[member] for member in body if member in without})))

        assert len(keys) == (2 if name in ("model", "state", "questions") else 3)

    QUESTIONS: Mapping[type, Mapping[str, tuple[Any, Any]]] = {
        schema.NoulQuestion: {
            "type": ("noul", None),
            "instructions": ("?", "? "),
            "criteria": ({"true": "a", "false": "b"}, {"true": "b", "false": "a"}),
        },
        schema.ChoiceQuestion: {
            "type": ("choice", None),
            "instructions": (None, ""),
            "criteria": ({"a": None, "b": "x"}, {"a": "x", "b": None}),
        },
        schema.ScoreQuestion: {
            "type": ("score", None),
            "instructions": ({"a": 1}, {"a": 1.0}),
            "criteria": (["low", "high"], ["high", "low"]),
        },
    }

    @pytest.mark.parametrize("kind", QUESTIONS, ids=lambda kind: kind.__name__)
    def test_every_documented_member_of_a_question_is_listed(self, kind):
        assert set(kind.model_fields) == set(self.QUESTIONS[kind])

    @pytest.mark.parametrize(
        ("kind", "name"),
        [
            (kind, name)
            for kind, members in QUESTIONS.items()
            for name in (*members, "x_stray")
            if name != "type"
        ],
    )
    def test_changing_a_member_of_a_question_alone_makes_another_key(self, kind, name):
        question = {member: values[0] for member, values in self.QUESTIONS[kind].items()}
        changed = self.QUESTIONS[kind].get(name, (1, 2))[1]

        keys = {
            key_of_body(encode({"model": "jev-latest", "state": "", "questions": {"q": asked}}))
            for asked in (question, question | {name: changed})
        }

        assert len(keys) == 2

    @pytest.mark.parametrize(("name", "reason"), NOT_IN_THE_KEY.items())
    def test_what_is_left_out_has_a_reason_and_makes_no_other_key(self, name, reason):
        body = {"model": "jev-latest", "state": "", "questions": {"q": {"type": "noul", "instructions": "?"}}}

        keys = {key_of_body(encode(body | extra)) for extra in ({}, {name: "1"}, {name: {"deep": [2]}})}

        assert len(keys) == 1
        assert len(reason) > 20


def state_key(state: bytes) -> bytes:
    questions = b'{"q":{"type":"noul","instructions":"?"}}'
    return key_of_body(b'{"model":"jev-latest","questions":' + questions + b',"state":' + state + b"}")


class TestSpellings:
    def test_numbers_that_python_calls_equal_make_other_requests(self):
        states = [
            b'{"n":1}',
            b'{"n":1.0}',
            b'{"n":true}',
            b'{"n":"1"}',
            b'{"n":-0.0}',
            b'{"n":0.0}',
            b'{"n":0}',
        ]

        assert len({state_key(state) for state in states}) == len(states)

    @pytest.mark.parametrize(
        ("one", "other"),
        [
            (b'{"n":1e2}', b'{"n":100.0}'),
            (b'{"n":-0}', b'{"n":0}'),
            (b'{ "n" :\n1 }', b'{"n":1}'),
            (b'"\\u0061\\/"', b'"a/"'),
            (b'"\\ud83d\\ude00"', '"😀"'.encode()),
        ],
    )
    def test_two_spellings_of_one_value_are_one_request(self, one, other):
        assert state_key(one) == state_key(other)

    @pytest.mark.parametrize(
        ("one", "other"),
        [
            (b"[null]", b'["null"]'),
            (b'["a",["b"]]', b'[["a"],"b"]'),
            (b'{"a":1,"b":2}', b'{"b":2,"a":1}'),
            ('"é"'.encode(), '"e\u0301"'.encode()),
            (b"[18446744073709551616]", b"[18446744073709551617]"),
            (b"[18446744073709551616]", b"[18446744073709551616.0]"),
            (b'{"n":1}', b'"{\\"n\\":1}"'),
        ],
    )
    def test_two_values_are_two_requests(self, one, other):
        assert state_key(one) != state_key(other)

    @pytest.mark.parametrize(
        ("one", "other"),
        [
            ({"a": {"type": "noul", "instructions": "1"}, "b": {"type": "noul", "instructions": "2"}},) * 2,
            ({"q": {"type": "choice", "criteria": {"a": None, "b": None}}},) * 2,
        ],
        ids=["questions", "options"],
    )
    def test_order_makes_another_request(self, one, other):
        turned = json.loads(json.dumps(other), object_pairs_hook=lambda members: dict(reversed(members)))
        body = {"model": "jev-latest", "state": ""}

        assert key_of_body(encode(body | {"questions": one})) != key_of_body(
            encode(body | {"questions": turned})
        )

    @given(st.data(), st.lists(JSON_VALUES, max_size=3))
    def test_every_spelling_of_a_body_has_the_key_of_the_body(self, data, state):
        body = {
            "model": "jev-latest",
            "state": state,
            "questions": {"q": {"type": "noul", "instructions": "?"}},
        }

        assert key_of_body(data.draw(spellings(body))) == key_of_body(encode(body))

    @given(JSON_VALUES, JSON_VALUES)
    def test_two_states_share_a_key_only_when_they_are_the_same_value(self, one, other):
        assert (state_key(encode([one])) == state_key(encode([other]))) == (typed(one) == typed(other))
