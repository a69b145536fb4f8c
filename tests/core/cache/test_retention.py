"""How long decisions are kept."""

import math
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from core.cache.decision import Decision
from core.cache.retention import MAX_TTL_S, NotKept, Retention, Rule, load_function, ttl
from core.errors import SettingsError
from tests.core.cache.faulty import NOW, kept, noul

IMPOSSIBLE = [-1, -0.001, -math.inf, math.inf, math.nan, True, False, "60", b"60", [60]]
TWO_QUESTIONS = replace(
    noul(1),
    answers=b'{"a":{"type":"noul","noul":0.9},"b":{"type":"noul","noul":0.6}}',
    margins={"a": 0.8, "b": 0.2},
)


def a_minute(_decision):
    return 60.0


NOT_A_FUNCTION = 60


@pytest.mark.parametrize("value", IMPOSSIBLE, ids=repr)
def test_an_impossible_time_to_live_is_refused_when_it_is_set(value):
    with pytest.raises(SettingsError, match="ttl_s"):
        Retention(ttl_s=value)
    with pytest.raises(SettingsError, match="max_age_s"):
        Retention(max_age_s=value)
    with pytest.raises(SettingsError, match="ttl_s"):
        Rule(value)


@pytest.mark.parametrize("value", [*IMPOSSIBLE, ValueError("raised")], ids=repr)
def test_a_function_that_raises_or_returns_no_time_to_live_keeps_nothing(value):
    def function(_decision):
        if isinstance(value, Exception):
            raise value
        return value

    assert Retention(function=function).stamp(noul(1), NOW) is NotKept.FUNCTION_FAILED


@pytest.mark.parametrize(
    ("value", "kept_for"),
    [
        (60, 60.0),
        (0.5, 0.5),
        (0.0004, 0.001),
        (1e-9, 0.001),
        (0.0016, 0.002),
        (10**12, MAX_TTL_S),
        (10**400, MAX_TTL_S),
    ],
)
def test_times_to_live_are_whole_milliseconds_at_least_one_and_never_overflow(value, kept_for):
    assert ttl("ttl_s", value) == kept_for
    assert kept(Retention(ttl_s=value), noul(1), NOW).expires_at == NOW + kept_for


def test_never_is_only_the_explicit_none():
    assert kept(Retention(ttl_s=None), noul(1), NOW).expires_at is None


@pytest.mark.parametrize("zero", [0, 0.0, -0.0])
def test_zero_keeps_nothing(zero):
    assert Retention(ttl_s=zero).stamp(noul(1), NOW) is NotKept.TTL_ZERO
    assert Retention(function=lambda _: zero).stamp(noul(1), NOW) is NotKept.TTL_ZERO


@given(
    ttl_s=st.none() | st.floats(0.001, 1e9),
    max_age_s=st.none() | st.floats(0.001, 1e9),
    evidence=st.none() | st.floats(0.001, 1e9).map(lambda s: NOW + s),
)
def test_the_earliest_of_all_limits_is_the_expiry(ttl_s, max_age_s, evidence):
    stamped = Retention(ttl_s=ttl_s, max_age_s=max_age_s).stamp(noul(1, last_expiry=evidence), NOW)

    if stamped is NotKept.EXPIRED:  # the deadline is in the same millisecond
        assert evidence is not None
        assert evidence < NOW + 0.002
        return
    assert isinstance(stamped, Decision)
    limits = [limit for limit in (ttl_s and NOW + ttl_s, max_age_s and NOW + max_age_s, evidence) if limit]
    assert stamped.expires_at == (pytest.approx(min(limits), abs=0.0011) if limits else None)
    assert evidence is None or (stamped.expires_at or math.inf) <= evidence
    assert stamped.stored_at == NOW


@pytest.mark.parametrize("deadline", [NOW, NOW - 1, 0.0, -5.0, math.nan])
def test_a_decision_whose_deadline_has_passed_is_not_kept(deadline):
    assert Retention().stamp(noul(1, last_expiry=deadline), NOW) is NotKept.EXPIRED


def test_a_deadline_beyond_all_dates_is_shortened():
    assert kept(Retention(), noul(1, last_expiry=math.inf), NOW).expires_at == NOW + MAX_TTL_S


def test_the_first_rule_that_covers_an_answer_counts():
    rules = (Rule(10, question="a", margin_from=0.9), Rule(20, question="a"), Rule(30))

    assert kept(Retention(ttl_s=40, rules=rules), noul(1), NOW).expires_at == NOW + 30
    assert kept(Retention(ttl_s=40, rules=rules[:2]), TWO_QUESTIONS, NOW).expires_at == NOW + 20


def test_a_decision_lives_as_long_as_its_shortest_lived_answer():
    rules = (Rule(None, question="a"), Rule(5, question="b"))

    assert kept(Retention(rules=rules), TWO_QUESTIONS, NOW).expires_at == NOW + 5
    assert Retention(rules=(Rule(0, question="b"),)).stamp(TWO_QUESTIONS, NOW) is NotKept.TTL_ZERO


@pytest.mark.parametrize(("margin", "kept_for"), [(0.0, 5), (0.499999, 5), (0.5, 500), (1.0, 500)])
def test_uncertain_answers_may_be_kept_for_less_and_the_bound_belongs_to_the_certain(margin, kept_for):
    rules = (Rule(5, margin_below=0.5), Rule(500, margin_from=0.5))

    stamped = kept(Retention(ttl_s=1, rules=rules), replace(noul(1), margins={"q": margin}), NOW)
    assert stamped.expires_at == NOW + kept_for


@pytest.mark.parametrize("margin", [-0.1, 1.1, math.nan, True, "0.5"])
def test_a_rule_with_an_impossible_margin_is_refused(margin):
    with pytest.raises(SettingsError, match="margin"):
        Rule(5, margin_below=margin)


def test_rules_beside_a_function_are_refused():
    with pytest.raises(SettingsError, match="rules"):
        Retention(function=a_minute, rules=(Rule(5),))


def test_a_maximum_age_of_zero_is_refused():
    with pytest.raises(SettingsError, match="max_age_s"):
        Retention(max_age_s=0)


def test_a_function_is_imported_by_its_path():
    assert load_function(f"{__name__}:a_minute")(noul(1)) == 60.0


@pytest.mark.parametrize(
    "path", ["no.such.module:f", f"{__name__}:no_such", f"{__name__}:NOT_A_FUNCTION", "", "a", ":f"]
)
def test_a_path_that_leads_to_no_function_is_refused(path):
    with pytest.raises(SettingsError, match="function"):
        load_function(path)


def expiry_after(retention: Retention, *hits: float) -> float | None:
    """The expiry of a decision stored at NOW and replayed so many seconds later."""
    decision = kept(retention, noul(1), NOW)
    for hit in hits:
        decision = retention.renew(decision, NOW + hit) or decision
    return None if decision.expires_at is None else decision.expires_at - NOW


def test_nothing_is_renewed_unless_asked_for():
    assert expiry_after(Retention(ttl_s=160), 159) == 160


def test_a_renewal_waits_for_a_sixteenth_of_the_time_to_live():
    retention = Retention(ttl_s=160, renew_on_hit=True)

    assert expiry_after(retention, 9.999) == 160
    assert expiry_after(retention, 10) == 170
    assert expiry_after(retention, 10, 19) == 170


def test_a_decision_replayed_all_the_time_is_written_sixteen_times_per_time_to_live():
    retention = Retention(ttl_s=160, renew_on_hit=True)
    decision = kept(retention, noul(1), NOW)
    writes = 0
    for tenth in range(1_600):
        renewed = retention.renew(decision, NOW + tenth / 10)
        if renewed is not None:
            decision, writes = renewed, writes + 1

    assert 14 <= writes <= 16
    assert decision.expires_at == NOW + 160 + 150


@given(
    st.lists(st.floats(0.0, 50.0), max_size=60), st.none() | st.floats(1, 400), st.none() | st.floats(1, 400)
)
def test_no_renewal_passes_the_maximum_age_or_the_deadline_of_the_evidence(steps, max_age_s, evidence_s):
    retention = Retention(ttl_s=60, max_age_s=max_age_s, renew_on_hit=True)
    deadline = None if evidence_s is None else NOW + evidence_s
    decision = kept(retention, noul(1, last_expiry=deadline), NOW)
    now = NOW
    for step in steps:
        now += step
        assert decision.expires_at is not None
        if now >= decision.expires_at:
            break
        decision = retention.renew(decision, now) or decision

        assert decision.expires_at is not None
        assert max_age_s is None or decision.expires_at <= NOW + max_age_s + 0.001
        assert deadline is None or decision.expires_at <= deadline


def test_the_last_renewal_reaches_the_limit_itself():
    retention = Retention(ttl_s=160, max_age_s=165, renew_on_hit=True)

    assert expiry_after(retention, 5) == 165
    assert expiry_after(retention, 5, 164) == 165


def test_what_never_expires_is_not_renewed():
    assert expiry_after(Retention(renew_on_hit=True), 1e6) is None
