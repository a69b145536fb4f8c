"""The compact form stands for the value and for nothing else; the quick way and the strict way agree."""

import json
from typing import Any, Never

from hypothesis import given
from hypothesis import strategies as st

from core.contract.strict_json import decode, encode
from core.errors import MalformedBody
from tests.strategies import JSON_VALUES, POISONS, damaged_bytes, spellings, typed


@given(st.data(), JSON_VALUES)
def test_every_spelling_of_a_value_has_one_compact_form(data, value):
    spelled = data.draw(spellings(value))

    read, compact = decode(spelled)

    assert typed(read) == typed(value)
    assert compact == encode(value)


@given(JSON_VALUES)
def test_the_compact_form_is_its_own_compact_form(value):
    compact = encode(value)

    read, again = decode(compact)

    assert (typed(read), again) == (typed(value), compact)


@given(JSON_VALUES, JSON_VALUES)
def test_two_values_share_a_compact_form_only_when_they_are_the_same_value(one, other):
    assert (encode(one) == encode(other)) == (typed(one) == typed(other))


TWINS = [
    [1, 1.0, True, "1"],
    [0, 0.0, -0.0, False, "0", "", None, "null", [], {}],
    [2**64, 2.0**64, 2**64 + 1],
]


@given(st.sampled_from(TWINS), st.data(), JSON_VALUES)
def test_values_that_python_calls_equal_stay_apart_anywhere_in_a_body(twins, data, around):
    one, other = data.draw(st.permutations(twins))[:2]

    assert encode([around, {"n": one}]) != encode([around, {"n": other}])


@given(st.data())
def test_the_order_of_members_and_elements_counts(data):
    value = data.draw(st.dictionaries(st.text("abc", min_size=1, max_size=2), st.integers(0, 3), min_size=2))
    shuffled = {name: value[name] for name in data.draw(st.permutations(list(value)))}

    assert (encode(value) == encode(shuffled)) == (list(value) == list(shuffled))


def reference(body: bytes) -> Any:
    """Python's own decoder, told to refuse what a decision must not rest on; raises ValueError."""
    if body.startswith(b"\xef\xbb\xbf"):
        raise ValueError
    value = json.loads(
        body.decode(),
        object_pairs_hook=_once,
        parse_constant=_no_word,
        parse_float=_finite,
        parse_int=_short,
    )
    json.dumps(value, ensure_ascii=False).encode()  # fails for half of a surrogate pair
    if _depth(value) > 64:
        raise ValueError
    return value


def _once(members: list[tuple[str, Any]]) -> dict[str, Any]:
    if len({name for name, _ in members}) < len(members):
        raise ValueError
    return dict(members)


def _no_word(_name: str) -> Never:
    raise ValueError


def _finite(literal: str) -> float:
    if abs(float(literal)) == float("inf"):
        raise ValueError
    return float(literal)


def _short(literal: str) -> int:
    if len(literal.lstrip("-")) > 308:
        raise ValueError
    return int(literal)


def _depth(value: Any) -> int:
    members = value.values() if isinstance(value, dict) else value if isinstance(value, list) else None
    return 0 if members is None else 1 + max(map(_depth, members), default=0)


NUMBERS = st.from_regex(rb"-?(0|[1-9][0-9]{0,22})(\.[0-9]{1,25})?([eE][+-]?[0-9]{1,3})?", fullmatch=True)
STRINGS = st.from_regex(rb'"([ -!#-\[\]-~]|\\["\\/bfnrt]|\\u[0-9a-fA-F]{4}){0,6}"', fullmatch=True)
LITERALS = st.one_of(
    NUMBERS, STRINGS, st.sampled_from(POISONS), st.sampled_from([b"true", b"null", b"{}", b"[ ]"])
)


@given(
    st.recursive(
        LITERALS, lambda inner: st.lists(inner, max_size=4).map(lambda parts: b"[" + b",".join(parts) + b"]")
    )
)
def test_literals_of_every_kind_are_read_as_the_reference_reads_them(body):
    assert_same_verdict(body)


@given(damaged_bytes())
def test_damaged_bodies_are_read_as_the_reference_reads_them(body):
    assert_same_verdict(body)


@given(st.binary(max_size=40))
def test_any_bytes_are_read_as_the_reference_reads_them(body):
    assert_same_verdict(body)


@given(st.data(), JSON_VALUES)
def test_a_repeated_member_is_never_lost_by_the_quick_way(data, value):
    # The quick way proves itself by writing the value again: a dropped member is the case it exists for.
    name = data.draw(st.sampled_from(["a", "é", ""]))
    member = json.dumps(name, ensure_ascii=False).encode() + b":" + encode(value)

    assert_same_verdict(b"{" + member + b"," + member + b"}")


# Texts that look alike once spaces are gone, shorter and longer than what they are written again as.
ALIKE_NAMES = st.sampled_from([b'"a"', b'"a "', b'" a"', b'"\\u0061"', b'"a\\u0020"', b'""', b'" "', b'"a,"'])
ALIKE_VALUES = st.sampled_from(
    [b"1", b"1E5", b"100000.0", b"1e5", b'"1"', b'"1 "', b'"\\u0020"', b'" "', b"[]", b"[ ]", b"-0", b"0"]
)


@given(st.lists(st.tuples(ALIKE_NAMES, ALIKE_VALUES, st.sampled_from([b"", b" ", b"\n"])), max_size=6))
def test_members_that_are_alike_but_for_spaces_are_told_apart(members):
    assert_same_verdict(
        b"{" + b",".join(name + b":" + space + value for name, value, space in members) + b"}"
    )


def assert_same_verdict(body: bytes) -> None:
    try:
        expected = reference(body)
    except (ValueError, RecursionError):
        try:
            decode(body)
        except MalformedBody:
            return
        raise AssertionError("accepted what the reference refuses") from None
    value, compact = decode(body)
    assert typed(value) == typed(expected)
    assert compact == encode(expected)
