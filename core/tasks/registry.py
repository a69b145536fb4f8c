"""The tasks that this process serves, by tenant, each tenant's as one immutable value."""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

from core.contract.questions import asked_as
from core.tables.verdict import Decides
from core.tasks.record import State, TaskRecord


@dataclass(frozen=True, slots=True)
class Here:
    """What a process does with a table that its record says is active, instead of serving it."""

    state: State  # timing, unavailable or off
    reason: str


@dataclass(frozen=True, slots=True)
class Following:
    """A version that will be served in place of the present one."""

    version: int
    here: Here  # why it is not served yet


@dataclass(frozen=True, slots=True)
class Registered:
    """A task as it is served here."""

    record: TaskRecord
    table: Decides | None  # None while there is none to ask
    here: Here | None = None  # why the table that the record names is not asked here
    following: Following | None = None  # a newer version that is not served here yet


@dataclass(frozen=True, slots=True)
class TenantTasks:
    """All tasks of one tenant at one moment."""

    by_id: Mapping[str, Registered]
    by_question: Mapping[bytes, Registered]  # of several tasks with one question, the one registered first
    kept: Mapping[str, str]  # versions that were withdrawn, whose decisions are kept -> what callers are told

    @classmethod
    def of(cls, registered: Iterable[Registered]) -> "TenantTasks":
        """Arrange tasks for lookup."""
        oldest_first = sorted(registered, key=lambda one: (one.record.created_at, one.record.id))
        by_question: dict[bytes, Registered] = {}
        for one in oldest_first:
            asked = asked_as(one.record.question)
            if asked is not None:
                by_question.setdefault(asked, one)
        kept = {name: text for one in oldest_first for name, text in _kept(one.record)}
        return cls({one.record.id: one for one in oldest_first}, by_question, kept)


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

    def apply(
        self,
        record: TaskRecord,
        table: Decides | None,
        here: Here | None = None,
        following: Following | None = None,
    ) -> None:
        """Serve a task as `record` says, in place of what was served under its id."""
        others = [one for one in self.all(record.tenant) if one.record.id != record.id]
        one = Registered(record, table, here, following)
        self._tenants[record.tenant] = TenantTasks.of([*others, one])

    def remove(self, tenant: str, task_id: str) -> None:
        """Serve a task no more."""
        others = [one for one in self.all(tenant) if one.record.id != task_id]
        if others:
            self._tenants[tenant] = TenantTasks.of(others)
        else:
            self._tenants.pop(tenant, None)


def _kept(record: TaskRecord) -> Iterator[tuple[str, str]]:
    if record.fast_table is not None and record.fast_table.on_revoke == "keep":
        for one in record.revoked:
            name = f"{record.id}@{one.version}"
            yield name, f"answered by table {name}, which was withdrawn since; its decisions are kept"
