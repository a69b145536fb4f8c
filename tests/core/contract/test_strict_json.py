"""What the strict decoder accepts, what it refuses, and that it refuses everything with a fixed sentence."""

import json
from typing import Any

import pytest

from core.contract.strict_json import MAX_DEPTH, MAX_INTEGER_DIGITS, decode, encode
from core.errors import MalformedBody


def compact(body: bytes) -> bytes:
    return decode(body)[1]


@pytest.mark.parametrize(
    ("body", "value"),
    [
        (b"null", None),
        (b" [1, 2] ", [1, 2]),
        (b'{"b":1,"a":2}', {"b": 1, "a": 2}),
        (b'"\\u0061\\n"', "a\n"),
        (b"1e2", 100.0),
        (b"-0", 0),
        (b"1E4", 10000.0),
        (b'"\\u0000"', "\x00"),
        ('"é🙂"'.encode(), "é🙂"),
    ],
)
def test_valid_json_is_decoded(body, value):
    assert decode(body)[0] == value


@pytest.mark.parametrize(
    "body",
    [
        b'{"a":1,"a":2}',
        b'{"a":1,"a":1}',
        b'{"a":1,"\\u0061":1}',
        b'{"x":{"y":[{"a":1,"b":2,"a":3}]}}',
        b'{"":1,"":2}',
        b'{"a":1,"a":1E6}',  # as long as what is left when the first is dropped and the number written out
        b'{"a":1,"a":1,"a ":1}',
        '{"é":1,"\\u00e9":2}'.encode(),
    ],
)
def test_a_member_twice_in_one_object_is_refused(body):
    with pytest.raises(MalformedBody, match="the same member twice"):
        decode(body)


def test_the_same_member_in_two_objects_is_fine():
    assert decode(b'[{"a":1},{"a":{"a":2}}]')[0] == [{"a": 1}, {"a": {"a": 2}}]


def test_member_names_are_compared_code_point_by_code_point():
    body = '{"é":1,"e\u0301":2,"E\u0301":3}'.encode()

    assert list(decode(body)[0]) == ["é", "e\u0301", "E\u0301"]


@pytest.mark.parametrize("token", [b"NaN", b"Infinity", b"-Infinity"])
@pytest.mark.parametrize("around", [b"%b", b"[%b]", b'{"x":{"y":[1,%b]}}'])
def test_number_words_that_are_not_json_are_refused(token, around):
    with pytest.raises(MalformedBody, match="NaN and Infinity are not JSON numbers"):
        decode(around % token)


@pytest.mark.parametrize(
    "number", [b"1e999", b"-1e999", b"1e309", b"1.7976931348623159e308", b"9" * 400 + b".0"]
)
def test_a_number_that_overflows_is_refused(number):
    with pytest.raises(MalformedBody, match="too large to be finite"):
        decode(b'{"x":%b}' % number)


@pytest.mark.parametrize("number", [b"1e-999", b"-1e-999", b"5e-324", b"1.7976931348623157e308"])
def test_a_number_at_the_edge_of_what_a_double_holds_is_accepted(number):
    value, written = decode(number)

    assert json.loads(written) == value == float(number)


@pytest.mark.parametrize("sign", [b"", b"-"])
def test_an_integer_may_have_as_many_digits_as_the_limit_and_no_more(sign):
    longest = sign + b"9" * MAX_INTEGER_DIGITS

    assert compact(longest) == longest
    for digits in (MAX_INTEGER_DIGITS + 1, 5_000):
        with pytest.raises(MalformedBody, match="digits"):
            decode(sign + b"9" * digits)


EDGES = [2**53, 2**63 - 1, 2**63, 2**64 - 1, 2**64, 2**64 + 1, 2**64 + 2, 10**30, 10**30 + 1]


def test_integers_beyond_64_bits_keep_every_digit():
    forms = {compact(b"%d" % (sign * edge)) for edge in EDGES for sign in (1, -1)}

    assert forms == {b"%d" % (sign * edge) for edge in EDGES for sign in (1, -1)}


@pytest.mark.parametrize(
    "body",
    [
        b'"\\ud800"',
        b'{"\\udfff":1}',
        b'{"a":["\\udc00\\ud800"]}',
        b'"\\ud83d"',
        b'"\\ud83dx\\ude00"',
        b'[18446744073709551616,"\\ud800"]',
    ],
)
def test_half_of_a_surrogate_pair_is_refused(body):
    with pytest.raises(MalformedBody, match="half of a surrogate pair"):
        decode(body)


def test_a_surrogate_pair_is_the_character_itself():
    assert decode(b'"\\ud83d\\ude00"') == decode('"😀"'.encode()) == ("😀", '"😀"'.encode())


@pytest.mark.parametrize(
    "body", [b'"\xff"', b'"\xed\xa0\x80"', b'"\xc0\xaf"', b'"\xf4\x90\x80\x80"', b"\xfe\xff\x00["]
)
def test_bytes_that_are_not_utf_8_are_refused(body):
    with pytest.raises(MalformedBody, match="not valid UTF-8"):
        decode(body)


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"   ",
        b"\xef\xbb\xbf{}",
        "{}".encode("utf-16-le"),
        b"{",
        b'{"a":1',
        b'{"a":1}}',
        b'{"a":1} x',
        b'{"a":1}\x00',
        b"[1,]",
        b'{"a":1,}',
        b"{'a':1}",
        b"{a:1}",
        b"01",
        b"+1",
        b".5",
        b"1.",
        b"0x1f",
        b'"\n"',
        b'"\\x41"',
        b'"\\u12"',
        b'"open',
        b'"open\\',
        b"// no\n1",
        b"1 2",
        b"True",
        "\u00a01".encode(),
    ],
)
def test_what_is_not_json_is_refused(body):
    with pytest.raises(MalformedBody, match="JSON syntax error"):
        decode(body)


@pytest.mark.parametrize(("opening", "closing"), [(b"[", b"]"), (b'{"a":', b"}")], ids=["arrays", "objects"])
class TestDepth:
    def test_values_may_nest_as_deep_as_the_limit(self, opening, closing):
        body = opening * MAX_DEPTH + b"1" + closing * MAX_DEPTH

        assert compact(body) == body

    @pytest.mark.parametrize("depth", [MAX_DEPTH + 1, 1_000, 5_000, 20_000, 300_000])
    @pytest.mark.parametrize("closed", [True, False])
    def test_deeper_values_are_refused_without_recursion(self, opening, closing, depth, closed):
        body = opening * depth + b"1" + closing * depth * closed

        with pytest.raises(MalformedBody, match="nested deeper than 64 levels"):
            decode(body)


def test_brackets_inside_strings_do_not_count_as_depth():
    body = json.dumps({"a": "[" * 5_000 + '\\"{' * 5_000, "b\\": "]" * 10}).encode()

    assert decode(body)[0]["a"].count("[") == 5_000


def test_many_shallow_brackets_do_not_count_as_depth():
    body = b"[" + b",".join([b"[[]]"] * 10_000) + b"]"

    assert compact(body) == body


@pytest.mark.parametrize(
    "text",
    ['\\"' * 250_000, "\\\\" * 250_000, '[\\"' * 150_000, "[" * 500_000, "\\" * 499_999],
    ids=[
        "escaped quotes",
        "escaped backslashes",
        "brackets and quotes",
        "brackets",
        "lone backslash at the end",
    ],
)
@pytest.mark.parametrize("end", [b'"', b""], ids=["closed", "open"])
def test_a_long_string_of_escapes_is_scanned_once(text, end):
    # A scan that went back and forth would take minutes here; the suite's time-out is the assertion.
    body = b'["' + text.encode() + end + b"]" * 2

    with pytest.raises(MalformedBody):
        decode(body)


@pytest.mark.parametrize(
    "body",
    [
        b'{"marker-7f3":1,"marker-7f3":2}',
        b'["marker-7f3"',
        b'"marker-7f3\\ud800"',
        b'{"marker-7f3":1e999}',
        b"marker-7f3",
    ],
)
def test_the_message_repeats_nothing_of_the_body(body):
    with pytest.raises(MalformedBody) as refused:
        decode(body)

    assert "marker" not in str(refused.value)
    assert 0 <= refused.value.position <= len(body)


@pytest.mark.parametrize(
    ("value", "written"),
    [
        ({"b": [1, 1.0, True, "1", None, -0.0], "a": {}}, b'{"b":[1,1.0,true,"1",null,-0.0],"a":{}}'),
        ("é\u2028/<", '"é\u2028/<"'.encode()),
        ([2**64, 0.5], b"[18446744073709551616,0.5]"),
    ],
)
def test_the_compact_form_has_no_spaces_and_escapes_only_what_it_must(value: Any, written):
    assert encode(value) == written
