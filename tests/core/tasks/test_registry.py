"""What a process serves of its tenants' tasks, while they come and go."""

from core.tasks.registry import Registry
from tests.core.tasks.tables import CHOICE, ScriptedTable, record


def test_a_tenant_without_tasks_has_none():
    registry = Registry()

    assert registry.of("acme") is None
    assert registry.get("acme", "support") is None
    assert registry.all("acme") == []


def test_a_task_is_served_until_it_is_removed():
    registry, table = Registry(), ScriptedTable()
    registry.apply(record(), table)

    found = registry.get("acme", "support")
    assert found is not None
    assert found.table is table
    registry.remove("acme", "support")
    assert registry.of("acme") is None


def test_removing_what_is_not_there_changes_nothing():
    registry = Registry()
    registry.apply(record(), None)

    registry.remove("acme", "other")
    registry.remove("umbrella", "support")

    assert registry.get("acme", "support") is not None


def test_a_newer_record_takes_the_place_of_the_older():
    registry = Registry()
    registry.apply(record(n_examples=1), None)
    registry.apply(record(n_examples=2), None)

    assert [one.record.n_examples for one in registry.all("acme")] == [2]


def test_who_holds_the_tasks_of_one_moment_keeps_them():
    registry = Registry()
    registry.apply(record(), None)
    held = registry.of("acme")
    registry.remove("acme", "support")

    assert held is not None
    assert "support" in held.by_id


def test_tenants_see_only_their_own():
    registry = Registry()
    registry.apply(record(), None)
    registry.apply(record(tenant="umbrella", n_examples=7), None)

    assert [one.record.n_examples for one in registry.all("umbrella")] == [7]
    assert [one.record.n_examples for one in registry.all("acme")] == [0]


def test_of_two_tasks_with_one_question_the_one_registered_first_has_it_in_whatever_order_they_arrive():
    first, second = record("b", created_at=1.0), record("a", created_at=2.0)
    for order in ([first, second], [second, first]):
        registry = Registry()
        for one in order:
            registry.apply(one, None)
        tasks = registry.of("acme")
        assert tasks is not None
        assert {one.record.id for one in tasks.by_question.values()} == {"b"}


def test_tasks_with_other_questions_are_found_by_theirs():
    registry = Registry()
    registry.apply(record("one"), None)
    registry.apply(record("two", question=CHOICE | {"instructions": "Which other?"}), None)

    tasks = registry.of("acme")
    assert tasks is not None
    assert len(tasks.by_question) == 2
