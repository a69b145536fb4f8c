"""What all Routers together have seen of the versions of a task while they served: one value in the store."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Any, Final

import orjson

from core.tables.watching import Bets, Drift, error_interval
from core.tasks.record import TableRef, TaskRecord

PREFIX: Final = "@watch/"  # no task's id holds an @ or a /


@dataclass(slots=True)
class Sightings:
    """What one Router saw of one version since it last told the others."""

    wrong: list[bool] = field(default_factory=list)  # of each certified answer that was compared
    low: list[bool] = field(default_factory=list)  # of each text, whether the confidence was in the tail
    answers: dict[int, int] = field(default_factory=dict)  # option -> how often the table gave it
    asked: int = 0  # requests that the table was asked about
    answered: int = 0  # of them, with a confidence that is certified

    def and_then(self, later: "Sightings") -> "Sightings":
        """These, and later ones."""
        answers = dict(self.answers)
        for option, count in later.answers.items():
            answers[option] = answers.get(option, 0) + count
        return Sightings(
            self.wrong + later.wrong,
            self.low + later.low,
            answers,
            self.asked + later.asked,
            self.answered + later.answered,
        )


@dataclass(frozen=True, slots=True)
class Seen:
    """What was seen of one version, all told."""

    table: str = ""  # digest of the table: after a removal, another one may have the version's number
    bets: Bets = field(default_factory=Bets)
    drift: Drift = field(default_factory=Drift)
    answers: Mapping[int, int] = field(default_factory=dict)
    asked: int = 0
    answered: int = 0

    def after(self, more: Sightings, table: TableRef) -> "Seen":
        """The same after more sightings."""
        answers = dict(self.answers)
        for option, count in more.answers.items():
            answers[option] = answers.get(option, 0) + count
        drift = self.drift if table.tail is None else self.drift.after(more.low, table.tail)
        return Seen(
            table.object,
            self.bets.after(more.wrong, table.certificate.alpha),
            drift,
            answers,
            self.asked + more.asked,
            self.answered + more.answered,
        )


@dataclass(frozen=True, slots=True)
class Watch:
    """What was seen of each version."""

    versions: Mapping[int, Seen] = field(default_factory=dict)
    rows_lost: int = 0  # that no store could be told in time

    def after(self, more: Mapping[int, Sightings], record: TaskRecord, rows_lost: int = 0) -> "Watch":
        """The same after more sightings; those of versions that the record has dropped go.

        Versions that are newer than the record are kept: it may be another Router that knows them.
        """
        kept = {one.version: one for one in record.versions}
        newest = max(kept, default=0)
        seen = {version: one for version, one in self.versions.items() if version in kept or version > newest}
        for version, sightings in more.items():
            if version in kept:
                before = seen.get(version, Seen())
                ref = kept[version]
                seen[version] = (before if before.table == ref.object else Seen()).after(sightings, ref)
        return replace(self, versions=seen, rows_lost=self.rows_lost + rows_lost)

    def alarms(self, record: TaskRecord) -> dict[int, str]:
        """Why versions that may still serve should not: a sentence for each that something speaks against."""
        found = {}
        for table in record.versions:
            seen = self.versions.get(table.version)
            why = None if seen is None or record.is_revoked(table.version) else _alarm(seen, table)
            if why is not None:
                found[table.version] = why
        return found

    def encode(self) -> bytes:
        """For the store."""
        versions = {str(version): _plain(seen) for version, seen in self.versions.items()}
        return orjson.dumps({"versions": versions, "rows_lost": self.rows_lost})


def decode(value: bytes | None) -> Watch:
    """What a store returned; nothing seen for what is none."""
    if value is None:
        return Watch()
    try:
        fields = orjson.loads(value)
        versions = {int(version): _seen(seen) for version, seen in fields["versions"].items()}
        return Watch(versions, int(fields["rows_lost"]))
    except (orjson.JSONDecodeError, AttributeError, KeyError, TypeError, ValueError):
        return Watch()


def public(seen: Seen, table: TableRef, options: Sequence[str]) -> dict[str, Any]:
    """What callers see of a version's watch."""
    low, high = error_interval(seen.bets.errors, seen.bets.checks)
    tail = table.tail
    return {
        "asked": seen.asked,
        "coverage": seen.answered / seen.asked if seen.asked else None,
        "error": {
            "checks": seen.bets.checks,
            "errors": seen.bets.errors,
            "interval": [low, high],
            "alpha": table.certificate.alpha,
            "wealth": seen.bets.wealth,
        },
        "drift": {
            "texts": seen.drift.texts,
            "low": seen.drift.low,
            "normal_share": None if tail is None else tail.normal,
            "below_confidence": None if tail is None else tail.below,
            "total": seen.drift.total,
        },
        "answers": {options[option]: count for option, count in sorted(seen.answers.items())},
    }


def _alarm(seen: Seen, table: TableRef) -> str | None:
    bets, drift, tail = seen.bets, seen.drift, table.tail
    if table.certificate.kind == "agreement" and bets.is_alarm:
        return (
            f"the engine gave {bets.errors} of the {bets.checks} certified answers that were checked "
            f"differently, which is more than alpha {table.certificate.alpha:g} allows"
        )
    if tail is not None and drift.is_alarm:
        return (
            f"the table was unsure of {drift.low} of {drift.texts} texts, more than the {tail.normal:.1%} of "
            "those that it was certified on: the texts are of another kind now"
        )
    return None


def _plain(seen: Seen) -> dict[str, Any]:
    fields = asdict(seen)
    fields["answers"] = {str(option): count for option, count in seen.answers.items()}
    return fields


def _seen(fields: dict[str, Any]) -> Seen:
    bets, drift = fields["bets"], fields["drift"]
    return Seen(
        fields["table"],
        Bets(bets["checks"], bets["errors"], tuple(bets["laid"])),
        Drift(**drift),
        {int(option): count for option, count in fields["answers"].items()},
        fields["asked"],
        fields["answered"],
    )
