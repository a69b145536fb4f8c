import math
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from core.tasks.rows import SERIES, Drawn, Row, about, decode, is_drawn
from tests.core.tasks.tables import CHOICE, record

ROW = Row(
    drawn=Drawn.TRAFFIC,
    features=np.array([3, 5, 5, 70_000], np.int64),
    answer=(0.75, 0.25),
    top=0,
    input=b"\x00\xff" * 16,
    about="0123456789abcdef",
    tokenizer="ab" * 16,
    at=1_000.25,
)


def as_read(row):
    found = decode(row.encode())
    assert found is not None
    return found


def test_a_row_is_read_as_it_was_written():
    vector = np.array([0.1, -2.5e-8, 3.0], np.float32)
    for row in (ROW, replace(ROW, drawn=Drawn.EXPLORE, vector=vector)):
        found = as_read(row)

        assert replace(found, features=row.features, vector=row.vector) == row
        assert found.features.tolist() == row.features.tolist()
        assert found.features.dtype == np.int64
        assert (found.vector is None) == (row.vector is None)
    assert as_read(replace(ROW, vector=vector)).vector.tobytes() == vector.tobytes()


@given(st.lists(st.floats(0.0, 1.0), min_size=1, max_size=255).filter(lambda w: sum(w) > 0.01))
def test_an_answer_is_kept_closely_and_still_sums_to_one(weights):
    answer = tuple(weight / sum(weights) for weight in weights)
    if max(answer) < 5e-4:
        return

    found = as_read(replace(ROW, answer=answer)).answer

    assert len(found) == len(answer)
    assert math.isclose(sum(found), 1.0, abs_tol=1e-9)
    left_out = sum(share for share in answer if share < 5e-4)
    assert max(abs(a - b) for a, b in zip(found, answer, strict=True)) < 6e-4 + left_out


def test_what_is_no_row_is_none():
    for value in (
        b"",
        b"{}",
        b"[]",
        b"null",
        b'{"drawn": "elsewhere"}',
        ROW.encode().replace(b"0.75", b'"x"'),
    ):
        assert decode(value) is None


def test_only_what_stands_for_all_requests_may_certify():
    assert {one: one.is_uniform for one in Drawn} == {
        Drawn.TRAFFIC: True,
        Drawn.EXPLORE: True,
        Drawn.PASSED: False,
        Drawn.SPOT_CHECK: False,
    }
    assert {one.series for one in Drawn} < set(SERIES)


def test_rows_are_about_one_question_context_and_engine():
    others = [
        (record(), "engine b"),
        (record(context="You route mail."), "engine a"),
        (record(question=CHOICE | {"instructions": "Which desk?"}), "engine a"),
    ]

    assert about(record(), "engine a") == about(record(task_id="another"), "engine a")
    assert len({about(record(), "engine a"), *(about(*other) for other in others)}) == 4


@pytest.mark.parametrize("share", [0.02, 0.5, 0.9])
def test_so_many_requests_are_drawn(share):
    keys = [number.to_bytes(16) for number in range(20_000)]

    drawn = sum(is_drawn(key, "explore support@1", share) for key in keys)

    assert abs(drawn / len(keys) - share) < 4 * math.sqrt(share * (1 - share) / len(keys))


def test_a_draw_depends_on_the_purpose_and_on_nothing_but_it_and_the_key():
    keys = [number.to_bytes(16) for number in range(2_000)]

    one, other = (
        {key for key in keys if is_drawn(key, name, 0.5)} for name in ("explore a@1", "explore a@2")
    )

    assert {key for key in keys if is_drawn(key, "explore a@1", 0.5)} == one
    assert 400 < len(one & other) < 600
    assert {key for key in keys if is_drawn(key, "explore a@1", 0.1)} < one


def test_no_share_draws_nothing():
    assert not any(is_drawn(number.to_bytes(16), "explore", 0.0) for number in range(1_000))
