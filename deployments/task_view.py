"""What callers see of a task: its record, what this Router does with it, and what all Routers saw of it."""

from collections.abc import Mapping
from typing import Any

from core.contract.questions import QuestionReader
from core.tasks import watch
from core.tasks.record import State, TaskRecord
from core.tasks.record_json import public
from core.tasks.registration import option_names
from core.tasks.registry import Registered
from core.tasks.watch import Watch
from deployments.timing import HostTimings


def view(
    one: Registered, seen: Watch, timings: HostTimings, counts: Mapping[str, int] | None = None
) -> dict[str, Any]:
    """A task as JSON.

    Args:
        one: the task as it is served here.
        seen: of its versions, by all Routers.
        timings: what tables take on this host.
        counts: of its rows, see `Tending.count`; None where nobody knows.
    """
    record = one.record
    shown = public(record, one.here)
    if one.following is not None and record.table is not None:
        here = one.following.here
        shown["status"]["reason"] = (
            f"version {record.table.version} serves until version {one.following.version} was timed"
        )
        shown["following"] = {
            "version": one.following.version,
            "state": here.state.value,
            "reason": here.reason,
        }
    ref = record.table
    measured = None if ref is None or ref.is_timed else timings.measured(ref)
    if ref is not None and measured is not None:
        shown["timing"] = measured.public(ref)
    _add_what_was_seen(shown, record, seen)
    if record.learns:
        shown["learning"] = _learning(record, seen, counts)
        if record.state is State.LEARNING:
            shown["status"]["reason"] = _why_learning(record, counts)
    return shown


def _add_what_was_seen(shown: dict[str, Any], record: TaskRecord, seen: Watch) -> None:
    question = QuestionReader().read(record.question_id, dict(record.question))
    assert question is not None  # it was valid when it was registered
    by_version = {
        ref.version: watch.public(seen.versions[ref.version], ref, option_names(question))
        for ref in record.versions
        if ref.version in seen.versions
    }
    for version in shown["versions"]:
        version["watch"] = by_version.get(version["version"])


def _learning(record: TaskRecord, seen: Watch, counts: Mapping[str, int] | None) -> dict[str, Any]:
    assert record.fast_table is not None  # it learns
    learned = record.learned
    return {
        "rows_needed": record.fast_table.min_rows,
        "rows_had": None if counts is None else counts["fresh"],
        "other_rows": None if counts is None else counts["others"],
        "labels": None if counts is None else counts["labels"],
        "rows_lost": seen.rows_lost,
        "last_look": None
        if learned is None or not learned.at
        else {"at": learned.at, "why_not": learned.why_not},
    }


def _why_learning(record: TaskRecord, counts: Mapping[str, int] | None) -> str:
    assert record.fast_table is not None  # it learns
    needed = record.fast_table.min_rows
    why_not = None if record.learned is None else record.learned.why_not
    begin = "" if why_not is None else f"nothing came of the last look: {why_not}. "
    if counts is None:
        return f"{begin}{needed} rows are needed for a look; GET this task to see how many there are"
    had = counts["fresh"]
    if had < needed:
        return f"{begin}{had} rows that may certify have come, and {needed} are needed for a look"
    return (
        f"{begin}{had} rows have come and {needed} are needed: the next run of `jobs.refit` looks at those "
        "that the present engine answered"
    )
