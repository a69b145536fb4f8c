"""The stored form: what is written is read back, and whatever else is read is told apart."""

import tracemalloc
import zlib
from dataclasses import replace
from functools import cache

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from core.cache.decision import Decision
from core.cache.envelope import (
    COMPRESS_FROM_BYTES,
    MAX_BYTES,
    VERSION,
    Corrupt,
    Foreign,
    Newer,
    decode,
    encode,
)
from tests.core.cache.faulty import key, noul, written

names = st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=12)
milliseconds = st.integers(0, 10**13).map(lambda n: n / 1000)
probabilities = st.floats(0, 1).map(lambda p: round(p, 6))
answer = st.one_of(
    st.fixed_dictionaries({"type": st.just("noul"), "noul": probabilities}),
    st.fixed_dictionaries(
        {
            "type": st.just("choice"),
            "choice": names,
            "probabilities": st.dictionaries(names, probabilities, min_size=1, max_size=80),
            "confidence": probabilities,
        }
    ),
)


@st.composite
def decisions(draw):
    answers = draw(st.dictionaries(names, answer, min_size=1, max_size=4))
    return Decision(
        key=draw(st.binary(min_size=16, max_size=16)),
        model=draw(names),
        answers=orjson.dumps(answers),
        margins={question: draw(probabilities) for question in answers},
        input_tokens=draw(st.integers(0, 10**6)),
        output_tokens=draw(st.integers(0, 10**6)),
        truncated=tuple(draw(st.lists(names, max_size=2))),
        tasks=tuple(draw(st.lists(names, max_size=2))),
        table_versions=tuple(draw(st.lists(names, max_size=2))),
        answered_by=draw(st.dictionaries(names, st.sampled_from(["table", "model"]), max_size=2)),
        stored_at=draw(milliseconds),
        expires_at=draw(st.none() | milliseconds),
        last_expiry=draw(st.none() | milliseconds),
        epoch=draw(st.integers(0, 2**40)),
    )


@given(decisions(), names)
def test_a_decision_is_read_back_as_it_was(decision, tenant):
    assert decode(written(decision, tenant), decision.key, tenant) == decision


@given(decisions(), names)
def test_equal_decisions_have_equal_bytes(decision, tenant):
    read = decode(written(decision, tenant), decision.key, tenant)

    assert isinstance(read, Decision)
    assert written(read, tenant) == written(decision, tenant)


@given(st.binary(max_size=300))
def test_no_bytes_make_reading_fail(value):
    assert isinstance(decode(value, key(1), "acme"), Decision | Foreign | Corrupt | Newer)


@given(decisions(), st.data())
def test_a_value_that_changed_anywhere_is_not_replayed(decision, data):
    value = bytearray(written(decision, "acme"))
    at = data.draw(st.integers(0, len(value) - 1))
    value[at] ^= data.draw(st.integers(1, 255))

    read = decode(bytes(value), decision.key, "acme")

    assert isinstance(read, Newer if at == 2 and value[2] > VERSION else Corrupt)


@given(decisions(), st.data())
def test_a_value_that_was_cut_or_extended_is_not_replayed(decision, data):
    value = written(decision, "acme")
    cut = value[: data.draw(st.integers(0, len(value) - 1))]

    assert isinstance(decode(cut, decision.key, "acme"), Corrupt)
    assert isinstance(decode(value + b"\0", decision.key, "acme"), Corrupt)


def test_a_value_of_another_key_or_tenant_is_recognised():
    value = written(noul(1), "acme")

    assert decode(value, key(2), "acme") == Foreign("key")
    assert decode(value, key(1), "other") == Foreign("tenant")


def test_a_value_of_a_later_format_is_recognised_whatever_follows():
    value = written(noul(1), "acme")

    assert decode(value[:2] + bytes([VERSION + 1]) + b"whatever", key(1), "acme") == Newer(VERSION + 1)


def sealed(value: bytes, body: bytes, size: int, head_size: int, flags: int) -> bytes:
    """A value like `value` around another body, with all sizes as claimed and a right checksum."""
    header = value[:3] + bytes([flags]) + value[4:60]
    header += head_size.to_bytes(4, "little") + size.to_bytes(4, "little")
    return header + body + zlib.crc32(header + body).to_bytes(4, "little")


@pytest.mark.parametrize(
    "head",
    [
        b"",
        b"{}",
        b"null",
        b'["m"]',
        b'["m",[0.5]]',
        b'["m",{"q":1.5}]',
        b'["m",{"q":-0.1}]',
        b'["m",{"q":true}]',
        b'["m",{"q":"0.5"}]',
        b'["m",{"q":null}]',
        b'[1,{"q":0.5}]',
        b'["m",{"q":0.5},-1]',
        b'["m",{"q":0.5},true]',
        b'["m",{"q":0.5},1.5]',
        b'["m",{"q":0.5},0,0,"q"]',
        b'["m",{"q":0.5},0,0,[1]]',
        b'["m",{"q":0.5},0,0,[],[],[],[]]',
        b'["m",{"q":0.5},0,0,[],[],[],{"q":1}]',
        b'["m",{"q":0.5},0,0,[],[],[],{},0]',
    ],
)
def test_a_sound_envelope_around_something_else_is_not_replayed(head):
    value, answers = written(noul(1), "acme"), b'{"q":{}}'

    forged = sealed(value, head + answers, len(head + answers), len(head), 0)
    assert isinstance(decode(forged, key(1), "acme"), Corrupt)


def test_a_forged_envelope_is_sound_apart_from_what_is_forged():
    value = written(noul(1), "acme")
    body = b'["m",{"q":0.5}]' + b'{"q":{}}'

    assert isinstance(decode(sealed(value, body, len(body), 15, 0), key(1), "acme"), Decision)
    assert isinstance(decode(sealed(value, body, len(body), 15, 2), key(1), "acme"), Corrupt)
    assert isinstance(decode(sealed(value, body, len(body) + 1, 15, 0), key(1), "acme"), Corrupt)
    assert isinstance(decode(sealed(value, body, len(body), 2**32 - 1, 0), key(1), "acme"), Corrupt)


@cache
def bomb() -> bytes:
    """A megabyte that expands to a gigabyte."""
    deflate = zlib.compressobj(wbits=-15)
    return b"".join(deflate.compress(bytes(2**24)) for _ in range(64)) + deflate.flush()


@pytest.mark.parametrize("claimed", [0, 1_000, MAX_BYTES, MAX_BYTES + 1, 2**32 - 1])
def test_a_small_value_that_expands_to_a_gigabyte_is_not_expanded(claimed):
    value = written(noul(1), "acme")
    tracemalloc.start()

    assert isinstance(decode(sealed(value, bomb(), claimed, 0, 1), key(1), "acme"), Corrupt)
    assert tracemalloc.get_traced_memory()[1] < 4 * len(bomb()) + 4 * MAX_BYTES
    tracemalloc.stop()


def test_a_compressed_value_must_be_whole_and_nothing_may_follow_it():
    value = written(noul(1), "acme")
    body = b'["m",{"q":0.5}]' + b'{"q":{}}'
    packed = zlib.compress(body, wbits=-15)

    assert isinstance(decode(sealed(value, packed, len(body), 15, 1), key(1), "acme"), Decision)
    assert isinstance(decode(sealed(value, packed[:-1], len(body), 15, 1), key(1), "acme"), Corrupt)
    assert isinstance(decode(sealed(value, packed + b"x", len(body), 15, 1), key(1), "acme"), Corrupt)
    assert isinstance(decode(sealed(value, packed, len(body) - 1, 15, 1), key(1), "acme"), Corrupt)
    assert isinstance(decode(sealed(value, packed, len(body) + 1, 15, 1), key(1), "acme"), Corrupt)


def test_large_decisions_are_compressed_and_small_ones_are_not():
    small = noul(1)
    options = {f"option number {n}": 0.012987 for n in range(77)}
    answers = orjson.dumps({"q": {"type": "choice", "choice": "option number 0", "probabilities": options}})
    large = replace(small, answers=answers)

    assert len(written(small, "acme")) < 160
    assert len(answers) > COMPRESS_FROM_BYTES
    assert len(written(large, "acme")) < len(answers) / 3


def test_what_is_larger_than_any_response_has_no_stored_form():
    answers = b'{"q":{"type":"' + b"a" * MAX_BYTES + b'"}}'

    assert encode(replace(noul(1), answers=answers), "acme") is None


def test_the_stored_form_does_not_change_unnoticed():
    decision = noul(1, input_tokens=7, stored_at=1_700_000_000.125, expires_at=1_700_000_060.5, epoch=3)

    assert written(decision, "acme").hex() == (
        "d3700100"
        "00000000000000000000000000000001"
        "302657b33c4da281"
        "7d68e5cf8b010000"
        "5454e6cf8b010000"
        "ffffffffffffff7f"
        "0300000000000000"
        "14000000"
        "34000000"
        "5b2266616b65222c7b2271223a302e387d2c375d"
        "7b2271223a7b2274797065223a226e6f756c222c226e6f756c223a302e397d7d"
        "6721ec3b"
    )
