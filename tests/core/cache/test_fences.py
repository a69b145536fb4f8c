"""Which decisions a purge is about, and which side of a fence they are on."""

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from core.cache.fences import EVERYTHING, MAX_SCOPES, NOTHING, Fences, Scope, is_covered, read_scope
from core.cache.stores.base import FenceTable
from core.errors import InvalidRequest
from core.identity import Identity
from tests.core.cache.faulty import noul

SOMEBODY = Identity("acme", "prod", "evidence-1", "contract-1")
BY_TABLES = replace(noul(1), tasks=("triage", "spam"), table_versions=("triage@3", "spam@1"))
MEMBERS = ("tenant", "deployment", "evidence", "contract", "task", "table_version")


def scope_of(members: dict[str, Any]) -> Scope:
    return Scope(**members)


member_values = st.dictionaries(st.sampled_from(MEMBERS), st.sampled_from(["a", "b", ""]), min_size=1)
scopes = st.just(EVERYTHING) | member_values.map(scope_of)


def fences(*entries: tuple[Scope, int]) -> Fences:
    by_scope = {scope.encode(): epoch for scope, epoch in entries}
    return Fences.of(FenceTable(b"store", max(by_scope.values(), default=0), by_scope))


@pytest.mark.parametrize(
    ("member", "value"),
    [
        ("tenant", "acme"),
        ("deployment", "prod"),
        ("evidence", "evidence-1"),
        ("contract", "contract-1"),
        ("task", "triage"),
        ("task", "spam"),
        ("table_version", "triage@3"),
        ("table_version", "spam@1"),
    ],
)
def test_a_fence_is_about_the_decisions_that_its_scope_names_and_no_others(member, value):
    before, after = replace(BY_TABLES, epoch=4), replace(BY_TABLES, epoch=5)

    named, other = fences((Scope(**{member: value}), 5)), fences((Scope(**{member: value + "x"}), 5))
    assert not named.allow(before, SOMEBODY)
    assert named.allow(after, SOMEBODY)
    assert other.allow(before, SOMEBODY)


def test_every_member_of_a_scope_must_match():
    before = replace(BY_TABLES, epoch=0)

    assert not fences((Scope(tenant="acme", task="triage"), 1)).allow(before, SOMEBODY)
    assert fences((Scope(tenant="other", task="triage"), 1)).allow(before, SOMEBODY)
    assert fences((Scope(tenant="acme", task="other"), 1)).allow(before, SOMEBODY)


def test_a_fence_around_everything_is_about_every_decision():
    assert not fences((EVERYTHING, 1)).allow(noul(1), Identity("anybody", "anything"))


def test_a_decision_without_a_revision_is_not_in_the_scope_of_one():
    assert fences((Scope(evidence="e"), 1)).allow(noul(1), Identity("acme", "prod"))


def test_an_empty_filter_is_refused_unless_everything_is_spelled_out():
    with pytest.raises(InvalidRequest, match="all=true"):
        Scope()
    with pytest.raises(InvalidRequest, match="drop one"):
        Scope(tenant="acme", everything=True)


def test_an_empty_name_is_a_name_and_not_a_missing_filter():
    assert fences((Scope(tenant=""), 1)).allow(noul(1), SOMEBODY)


def test_a_filter_that_cannot_be_written_is_refused():
    with pytest.raises(InvalidRequest, match="surrogate"):
        Scope(tenant="\ud800")


@given(scopes)
def test_a_scope_is_read_back_as_it_was(scope):
    assert read_scope(scope.encode()) == scope


@pytest.mark.parametrize("encoded", [b"", b"\xff", b"[]", b"1", b'{"tenant":1}', b'{"planet":"earth"}'])
def test_a_scope_that_cannot_be_understood_is_taken_for_everything(encoded):
    assert read_scope(encoded) == EVERYTHING


def test_a_member_of_a_later_version_is_left_out_which_makes_the_scope_wider():
    assert read_scope(b'{"tenant":"acme","planet":"earth"}') == Scope(tenant="acme")


def test_the_mark_of_a_new_store_fences_nothing():
    assert Fences.of(FenceTable(b"store", 1, {NOTHING: 1})).allow(noul(1), SOMEBODY)


def matches(scope: Scope, identity: Identity, tasks: tuple[str, ...], versions: tuple[str, ...]) -> bool:
    """The definition, written once more without any index."""
    return all(
        value in {"task": tasks, "table_version": versions}.get(name, (getattr(identity, name, None),))
        for name, value in scope.members().items()
    )


names = st.sampled_from(["a", "b", ""])


@given(
    st.lists(st.tuples(scopes, st.integers(1, 9)), max_size=12),
    st.builds(Identity, names, names, st.none() | names, st.none() | names),
    st.lists(names, max_size=2).map(tuple),
    st.lists(names, max_size=2).map(tuple),
    st.integers(0, 9),
)
def test_the_index_says_what_going_through_all_fences_says(entries, identity, tasks, versions, epoch):
    decision = replace(noul(1), tasks=tasks, table_versions=versions, epoch=epoch)
    newest = dict(entries)  # the last epoch of a scope counts

    expected = all(epoch >= e for scope, e in newest.items() if matches(scope, identity, tasks, versions))
    assert fences(*newest.items()).allow(decision, identity) is expected
    covered = any(matches(scope, identity, tasks, versions) for scope in newest)
    assert is_covered(decision, identity, list(newest)) is covered


@given(scopes, scopes, st.builds(Identity, names, names, names, names), names, names)
def test_a_scope_that_makes_another_superfluous_covers_all_that_it_covers(
    wide, narrow, identity, task, version
):
    if wide.covers(narrow) and matches(narrow, identity, (task,), (version,)):
        assert matches(wide, identity, (task,), (version,))


def test_a_wider_fence_drops_the_narrower_ones():
    known = fences((Scope(tenant="a", task="t"), 1), (Scope(tenant="b", task="t"), 2), (Scope(tenant="a"), 3))

    after = known.with_fence(Scope(tenant="a"), 4)
    assert dict(after.table.by_scope) == {
        Scope(tenant="b", task="t").encode(): 2,
        Scope(tenant="a").encode(): 4,
    }
    assert after.table.epoch == 4


def test_a_fence_after_purges_of_others_leaves_those_to_be_read():
    assert fences((EVERYTHING, 3)).with_fence(Scope(tenant="a"), 7).table.epoch == 3


def test_where_there_are_too_many_scopes_a_purge_is_widened_to_its_tenant_and_then_to_everything():
    by_scope = {Scope(tenant="a", evidence=f"e{n}").encode(): n for n in range(1, MAX_SCOPES + 1)}
    full = Fences.of(FenceTable(b"store", MAX_SCOPES, by_scope))

    assert full.widened(Scope(tenant="a", evidence="e1")) == Scope(tenant="a", evidence="e1")
    assert full.widened(Scope(tenant="a", evidence="new")) == Scope(tenant="a")
    assert full.widened(Scope(tenant="b", evidence="new")) == Scope(tenant="b")
    assert full.widened(Scope(task="t")) == EVERYTHING
