"""Records as bytes in a store, as JSON for people, and whole for another service."""

import math
from base64 import b64decode, b64encode
from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from typing import Any, Final

import orjson

from core.contract.questions import QuestionReader
from core.errors import InvalidRequest, Problem
from core.tables.certificate import Certificate
from core.tables.watching import Tail
from core.tasks.record import (
    CertifySettings,
    FastTableSettings,
    Learned,
    Revocation,
    State,
    TableRef,
    TaskRecord,
    object_digest,
)
from core.tasks.registration import option_names
from core.tasks.registry import Here

FORMAT: Final = "precedent-task/2"
FIRST_FORMAT: Final = "precedent-task/1"  # which had one version, and named its fit beside it
CATCH_ALL: Final = frozenset(
    ["other", "others", "none", "unknown", "oos", "n/a", "na", "misc", "miscellaneous", "else", "unclear"]
)

WORDS: Final = {
    State.LEARNING: "A table is being learned; until one is certified the engine answers.",
    State.TIMING: "The table is being timed on this host; until that is done the engine answers.",
    State.ACTIVE: "The table answers what its certificate covers; the engine answers the rest.",
    State.SUSPENDED: "The table was withdrawn; the engine answers until one is certified anew.",
    State.UNAVAILABLE: "The table cannot be asked here; the engine answers.",
    State.OFF: "The engine answers everything.",
}


def encode(record: TaskRecord) -> bytes:
    """The record for a store; its tenant, id and version are the store's to know."""
    fields = asdict(record)
    for known in ("tenant", "id", "version"):
        del fields[known]
    for ref in (*fields["versions"], *([] if fields["table"] is None else [fields["table"]])):
        if math.isinf(ref["certificate"]["threshold"]):
            ref["certificate"]["threshold"] = None
    return orjson.dumps({"format": FORMAT, **fields})


def decode(value: bytes, tenant: str, task_id: str, version: int) -> TaskRecord | None:
    """The record that a store returned; None for one that this version cannot read."""
    try:
        fields = _brought_up(orjson.loads(value))
        return None if fields is None else _record(fields, tenant, task_id, version)
    except (orjson.JSONDecodeError, AttributeError, KeyError, TypeError, ValueError):
        return None


def names_objects(record: TaskRecord) -> tuple[str, ...]:
    """Digests of the objects that a record names."""
    refs = [*record.versions, *([] if record.table is None else [record.table])]
    return tuple(dict.fromkeys(digest for ref in refs for digest in ref.objects))


def public(record: TaskRecord, here: Here | None = None) -> dict[str, Any]:
    """What callers see of a task: nothing of its examples.

    Args:
        record: the task.
        here: why this process does not serve its table, where that is so.
    """
    question = QuestionReader().read(record.question_id, dict(record.question))
    assert question is not None  # it was valid when it was registered
    options = option_names(question)
    state, reason = record.state, record.reason
    if here is not None and state is State.ACTIVE:
        state, reason = here.state, here.reason
    text = WORDS[state]
    if state is State.ACTIVE and record.fast_table is not None and record.fast_table.mode == "shadow":
        text = "The table decides, the engine answers, and the two are compared."
    per_option = () if record.table is None else record.table.per_option
    shown: dict[str, Any] = {
        "format": FORMAT,
        "id": record.id,
        "type": record.question["type"],
        "question_id": record.question_id,
        "question": dict(record.question),
        "options": options,
        "context": record.context,
        "n_examples": record.n_examples,
        "per_option": dict(zip(options, per_option, strict=True)) if per_option else {},
        "not_learned": [name for name, count in zip(options, per_option, strict=False) if count == 0],
        "certify": None if record.certify is None else asdict(record.certify),
        "looks": record.looks,
        "fast_table": False if record.fast_table is None else asdict(record.fast_table),
        "fast_table_report": dict(record.report) or None,
        "status": {"state": state.value, "reason": reason, "text": text},
        "store_version": record.version,
        "created_at": record.created_at,
        "updated_at": record.updated_at,
    }
    if record.table is not None:
        shown["table"] = {"version": record.table.version, "kind": record.table.kind}
        shown["certificate"] = public_certificate(record.table.certificate, options)
    shown["versions"] = [_public_version(one, record) for one in record.versions]
    return shown


def _public_version(ref: TableRef, record: TaskRecord) -> dict[str, Any]:
    revocation = next((one for one in record.revoked if one.version == ref.version), None)
    served = record.table is not None and record.table.version == ref.version
    return {
        "version": ref.version,
        "kind": ref.kind,
        "served": served and revocation is None,
        "certificate": {"kind": ref.certificate.kind, "summary": summary(ref.certificate)},
        "revoked": None if revocation is None else asdict(revocation),
    }


def public_certificate(certificate: Certificate, options: tuple[str, ...]) -> dict[str, Any]:
    """A certificate as callers see it."""
    shown = asdict(certificate)
    certified_n, errors = shown.pop("certified_n"), shown.pop("errors")
    shown |= {
        "procedure": "learn-then-test, fixed sequence, Clopper-Pearson",
        "threshold": certificate.threshold if certificate.certified else None,
        "certified": certificate.certified,
        "certified_share": certificate.certified_share,
        "certified_n": certified_n,
        "errors_at_threshold": errors,
        "error_rate_at_threshold": errors / certified_n if certified_n else None,
        "upper_bound_at_threshold": shown.pop("upper_bound"),
        "summary": summary(certificate),
        "warnings": [],
    }
    if len(options) > 2 and not CATCH_ALL & {name.casefold().strip() for name in options}:
        text = (
            "no option stands for everything else, so a text about something else gets one of these options"
        )
        shown["warnings"].append({"code": "no_catch_all_option", "text": text})
    return shown


def summary(certificate: Certificate) -> str:
    """What the certificate promises, in a sentence."""
    if not certificate.certified:
        return f"nothing is certified: {certificate.reason}"
    wrong = "wrong" if certificate.kind == "gold" else "not the engine's"
    if certificate.level_error:
        wrong = f"off by more than {certificate.level_error} level"
    return (
        f"at most {certificate.alpha:.3g} of the answers with confidence {certificate.threshold:.6g} or more "
        f"are {wrong}, with probability {1 - certificate.delta:.3g}; {certificate.errors} of "
        f"{certificate.certified_n} were, and {certificate.certified_share:.1%} of the held-out inputs are "
        "covered"
    )


def export(record: TaskRecord, objects: Mapping[str, bytes]) -> dict[str, Any]:
    """A task whole, for `read_import` elsewhere.

    Args:
        record: the task.
        objects: by digest, those that it names.
    """
    fields = orjson.loads(encode(record))
    whole = {digest: b64encode(objects[digest]).decode() for digest in names_objects(record)}
    return {"id": record.id, **fields, "objects": whole}


@dataclass(frozen=True, slots=True)
class Imported:
    """A task from elsewhere, with what it names."""

    record: TaskRecord
    objects: Mapping[str, bytes]  # by digest


def read_import(value: Any, tenant: str) -> list[Imported]:  # noqa: ANN401  any JSON value
    """Read `{"tasks": [...]}` with what `export` wrote; all of it or nothing.

    Raises:
        InvalidRequest: names the tasks that are not as they were exported.
    """
    tasks = value.get("tasks") if isinstance(value, dict) else None
    if not isinstance(tasks, list) or not tasks:
        problem = Problem(
            ("body", "tasks"), "must be an array of exported tasks with at least one", "list_type"
        )
        raise InvalidRequest((problem,))
    read = [_imported(one, tenant) for one in tasks]
    wrong = [
        Problem(("body", "tasks", index), problem, "value_error")
        for index, problem in enumerate(read)
        if isinstance(problem, str)
    ]
    if wrong:
        raise InvalidRequest(tuple(wrong))
    return [one for one in read if isinstance(one, Imported)]


def _imported(value: Any, tenant: str) -> Imported | str:  # noqa: ANN401
    whole = _brought_up(value) if isinstance(value, dict) else None
    if whole is None:
        return f"must be a task of format {FORMAT}, as GET /v1/tasks?full=1 gives it"
    try:
        objects = {digest: b64decode(text, validate=True) for digest, text in value["objects"].items()}
        fields = {name: member for name, member in whole.items() if name not in ("id", "objects")}
        record = _record(fields, tenant, value["id"], 0)
        if record.learned is not None:  # the rows stay behind, and others come with numbers of their own
            record = replace(record, learned=Learned())
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        return f"is not as it was exported: {type(error).__name__}"
    if not record.id or QuestionReader().read(record.question_id, dict(record.question)) is None:
        return "has no id, or no valid question"
    damaged = [
        digest for digest in names_objects(record) if object_digest(objects.get(digest, b"")) != digest
    ]
    if damaged:
        return f"{record.id[:64]!r}: the object {damaged[0]} is missing or not the one that it names"
    return Imported(record, objects)


def _brought_up(value: dict[str, Any]) -> dict[str, Any] | None:
    """The members of a record as this version writes them, without the format; None for an unknown format."""
    fields = {name: member for name, member in value.items() if name != "format"}
    if value.get("format") == FORMAT:
        return fields
    if value.get("format") != FIRST_FORMAT:
        return None
    fit, per_option, table = fields.pop("fit_object"), fields.pop("per_option"), fields["table"]
    if table is not None:
        rest = {"fit": fit, "per_option": per_option, "engine": "", "tail": None, "is_timed": True}
        fields["table"] = table | rest
    return fields | {"versions": [] if table is None else [fields["table"]], "revoked": [], "learned": None}


def _record(fields: dict[str, Any], tenant: str, task_id: str, version: int) -> TaskRecord:
    certify, fast_table, table = fields["certify"], fields["fast_table"], fields["table"]
    learned = fields["learned"]
    whole = TaskRecord(**{**fields, "tenant": tenant, "id": str(task_id), "version": version})
    return replace(
        whole,
        state=State(whole.state),
        certify=None if certify is None else CertifySettings(**certify),
        fast_table=None if fast_table is None else FastTableSettings(**fast_table),
        table=None if table is None else _table(table),
        versions=tuple(map(_table, fields["versions"])),
        revoked=tuple(Revocation(**one) for one in fields["revoked"]),
        learned=None if learned is None else Learned(**learned),
    )


def _table(fields: dict[str, Any]) -> TableRef:
    certificate = dict(fields["certificate"])
    if certificate["threshold"] is None:
        certificate["threshold"] = math.inf
    read = {**fields, "certificate": Certificate(**certificate), "per_option": tuple(fields["per_option"])}
    tail = fields["tail"]
    return TableRef(**{**read, "tail": None if tail is None else Tail(**tail)})
