from dataclasses import replace

import pytest

from core.tasks.notes import KEEP_FAILURES_S, SILENT_AFTER_S, Note, decode

NOTE = Note("support", "learning", 0.25, 1_000.0)


def test_a_note_comes_back_as_it_was():
    assert decode(NOTE.encode()) == NOTE


@pytest.mark.parametrize("value", [b"", b"[]", b"3", b'{"task": "support"}'])
def test_what_is_no_note_is_none(value):
    assert decode(value) is None


def test_a_fit_is_under_way_as_long_as_it_is_heard_of():
    assert NOTE.is_under_way(1_000.0 + SILENT_AFTER_S - 1)
    assert not NOTE.is_under_way(1_000.0 + SILENT_AFTER_S)
    assert not replace(NOTE, state="failed").is_under_way(1_000.0)


def test_callers_see_how_far_it_is():
    assert NOTE.public(1_001.0) == {"state": "learning", "progress": 0.25}


def test_callers_see_why_it_failed():
    assert replace(NOTE, state="failed", error="too few").public(1_001.0) == {
        "state": "failed",
        "error": "too few",
    }


def test_a_fit_that_fell_silent_has_failed_and_says_what_to_do():
    shown = NOTE.public(1_000.0 + SILENT_AFTER_S)

    assert shown["state"] == "failed"
    assert "register it again" in shown["error"]


def test_a_failure_is_kept_for_an_hour():
    assert not NOTE.is_stale(1_000.0 + KEEP_FAILURES_S - 1)
    assert NOTE.is_stale(1_000.0 + KEEP_FAILURES_S)
