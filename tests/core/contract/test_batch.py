import json

import pytest

from core.contract.batch import MAX_ITEMS, MAX_QUESTIONS, open_batch
from core.contract.request import Opened, open_body
from core.contract.strict_json import encode
from core.errors import InvalidRequest, MalformedBody

QUESTIONS = {"q": {"type": "noul", "instructions": "Is it so?"}}


def test_each_state_stands_for_the_request_that_asks_about_it_alone():
    batch = encode({"seed": 1, "model": "m", "states": ["a", {"b": 1}], "questions": QUESTIONS})

    parts = open_batch(batch)

    alone = [{"seed": 1, "model": "m", "state": state, "questions": QUESTIONS} for state in ("a", {"b": 1})]
    assert parts == [open_body(encode(request)) for request in alone]


def test_each_request_is_what_it_is_alone():
    requests = [{"model": "m", "state": "a", "questions": QUESTIONS}, {"state": "b"}, 7]

    assert open_batch(encode({"requests": requests})) == [open_body(encode(request)) for request in requests]


def test_what_is_not_in_the_key_is_not_in_a_parts_key():
    with_trace, without = open_batch(
        encode({"requests": [{"model": "m", "x_trace_id": "1"}, {"model": "m"}]})
    )

    assert isinstance(with_trace, Opened)
    assert isinstance(without, Opened)
    assert with_trace.compact == without.compact


def test_a_lone_surrogate_spoils_its_own_item_only():
    batch = json.dumps({"model": "m", "states": ["good", "\ud800", "\ud83d\ude00"], "questions": QUESTIONS})

    good, bad, pair = open_batch(batch.encode())

    assert isinstance(good, Opened)
    assert isinstance(bad, MalformedBody)
    assert isinstance(pair, Opened)


@pytest.mark.parametrize(
    "body", [b"", b"{", b'{"states":[NaN]}', b'{"states":[],"states":[]}', b"[" * 100_000]
)
def test_a_body_that_is_not_json_is_refused_whole(body):
    with pytest.raises(MalformedBody):
        open_batch(body)


@pytest.mark.parametrize(
    ("value", "says"),
    [
        ([], "must be an object"),
        ({}, "either states or requests"),
        ({"states": [], "requests": []}, "either states or requests"),
        ({"states": "abc"}, "must be an array"),
        ({"requests": {"0": {}}}, "must be an array"),
        ({"states": []}, "0 items"),
        ({"states": ["x"] * (MAX_ITEMS + 1)}, "65 items and 1 to 64"),
    ],
)
def test_a_body_that_is_no_batch_is_refused_with_what_is_wrong(value, says):
    with pytest.raises(InvalidRequest, match=says):
        open_batch(encode(value))


def test_as_many_items_as_are_allowed_are_taken():
    assert (
        len(open_batch(encode({"model": "m", "states": ["x"] * MAX_ITEMS, "questions": QUESTIONS})))
        == MAX_ITEMS
    )


def test_a_batch_that_asks_too_much_in_all_is_refused():
    questions = {f"q{n}": QUESTIONS["q"] for n in range(MAX_QUESTIONS // 64 + 1)}

    with pytest.raises(InvalidRequest, match="4160 questions and 4096 are allowed"):
        open_batch(encode({"model": "m", "states": ["x"] * 64, "questions": questions}))
