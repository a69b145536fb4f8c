"""The tasks that this process serves, by tenant, each tenant's as one immutable value."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from core.contract.questions import asked_as
from core.tables.verdict import Decides
from core.tasks.record import TaskRecord


@dataclass(frozen=True, slots=True)
class Registered:
    """A task as it is served here."""

    record: TaskRecord
    table: Decides | None  # None while there is none to ask
    unavailable: str | None = None  # why a table that the record names cannot be asked here


@dataclass(frozen=True, slots=True)
class TenantTasks:
    """All tasks of one tenant at one moment."""

    by_id: Mapping[str, Registered]
    by_question: Mapping[bytes, Registered]  # of several tasks with one question, the one registered first

    @classmethod
    def of(cls, registered: Iterable[Registered]) -> "TenantTasks":
        """Arrange tasks for lookup."""
        oldest_first = sorted(registered, key=lambda one: (one.record.created_at, one.record.id))
        by_question: dict[bytes, Registered] = {}
        for one in oldest_first:
            asked = asked_as(one.record.question)
            if asked is not None:
                by_question.setdefault(asked, one)
        return cls({one.record.id: one for one in oldest_first}, by_question)


class Registry:
    """Tasks by tenant. What a reader got from `of` never changes."""

    def __init__(self) -> None:
        self._tenants: dict[str, TenantTasks] = {}

    def of(self, tenant: str) -> TenantTasks | None:
        """The tenant's tasks; None when it has none."""
        return self._tenants.get(tenant)

    def get(self, tenant: str, task_id: str) -> Registered | None:
        """One task."""
        tasks = self._tenants.get(tenant)
        return None if tasks is None else tasks.by_id.get(task_id)

    def all(self, tenant: str) -> list[Registered]:
        """The tenant's tasks, the first registered first."""
        tasks = self._tenants.get(tenant)
        return [] if tasks is None else [*tasks.by_id.values()]

    def apply(self, record: TaskRecord, table: Decides | None, unavailable: str | None = None) -> None:
        """Serve a task as `record` says, in place of what was served under its id."""
        others = [one for one in self.all(record.tenant) if one.record.id != record.id]
        self._tenants[record.tenant] = TenantTasks.of([*others, Registered(record, table, unavailable)])

    def remove(self, tenant: str, task_id: str) -> None:
        """Serve a task no more."""
        others = [one for one in self.all(tenant) if one.record.id != task_id]
        if others:
            self._tenants[tenant] = TenantTasks.of(others)
        else:
            self._tenants.pop(tenant, None)
