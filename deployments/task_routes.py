"""`/v1/tasks`: teach a recurring question, see how it does, certify it anew, move it, remove it."""

import asyncio
import logging
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any
from urllib.parse import quote

from fastapi import APIRouter, Request
from fastapi.responses import Response

from core.contract.strict_json import decode, encode
from core.errors import (
    InvalidHeader,
    InvalidRequest,
    Problem,
    StoreUnavailable,
    TaskNotFound,
    TasksReadOnly,
)
from core.tasks.notes import Note
from core.tasks.record import State, TaskRecord
from core.tasks.record_json import WORDS, export, public, read_import
from core.tasks.registration import (
    read_labels,
    read_recertification,
    read_registration,
    read_rows,
    read_version,
)
from core.tasks.registry import Registered, Registry
from deployments import schema
from deployments.auth import Caller, Callers, Right
from deployments.bodies import BodyLimits, read_body
from deployments.http import content_encoding
from deployments.task_view import view
from deployments.teaching import Teaching
from deployments.tending import Tending
from deployments.timing import HostTimings

audit = logging.getLogger("ray.serve.precedent.audit")

REPLACES = (b"x-precedent-replaces", b"x-decisio-replaces")
RESPONSES: dict[int | str, dict[str, Any]] = {
    202: {"description": "Being fitted; `GET` the address in `Location` to see how far it is"},
    401: {"model": schema.Error, "description": "No API key, or one that is not known here"},
    403: {"model": schema.Error, "description": "An API key without the scope `teach`, or `read`"},
    404: {"model": schema.Error, "description": "No such task"},
    409: {"model": schema.Error, "description": "Another version is there, it is being fitted, or read-only"},
    413: {"model": schema.Error, "description": "Too many bytes"},
    422: {"model": schema.ValidationErrors, "description": "What is wrong with the body"},
    503: {"model": schema.Error, "description": "The task store did not answer; nothing was made"},
}


@dataclass(frozen=True, slots=True)
class TaskLimits:
    """What a caller may send, and how long a registration waits for its fit."""

    body: BodyLimits
    max_examples: int
    max_state_chars: int
    max_rows: int
    register_wait_s: float
    read_only: bool


def task_routes(  # noqa: PLR0913  each is a part of its own
    registry: Registry,
    teaching: Teaching,
    tending: Tending,
    timings: HostTimings,
    callers: Callers,
    limits: TaskLimits,
    about: Mapping[str, Any],
    *,
    clock: Callable[[], float] = time.time,
) -> APIRouter:
    """The routes over the tasks of one Router.

    Args:
        registry: the tasks that are served here.
        teaching: writes them.
        tending: looks after the tables that serve.
        timings: what tables take on this host.
        callers: whose request it is.
        limits: on what is sent.
        about: facts for the list of tasks, such as the engine's fingerprint.
        clock: Unix seconds.
    """
    desk = _Desk(registry, teaching, tending, timings, callers, limits, about, clock=clock)
    routes = APIRouter()

    def add(path: str, method: str, endpoint: Callable[..., Any], summary: str) -> None:
        routes.add_api_route(path, endpoint, methods=[method], responses=RESPONSES, summary=summary)

    add("/v1/tasks", "POST", desk.register, "Teach a recurring question with labelled examples")
    add("/v1/tasks", "GET", desk.list_all, "Your tasks; whole, for import elsewhere, with `full=1`")
    add("/v1/tasks/import", "POST", desk.bring, "Keep tasks that were exported elsewhere")
    add("/v1/tasks/{task_id}", "GET", desk.show, "One task: certificate, report, and how far a fit is")
    add("/v1/tasks/{task_id}", "DELETE", desk.remove, "Remove a task")
    add("/v1/tasks/{task_id}/certify", "POST", desk.certify, "Certify a task's table on other examples")
    add("/v1/tasks/{task_id}/labels", "POST", desk.label, "Say what is right for rows that were learned from")
    add("/v1/tasks/{task_id}/rows/erase", "POST", desk.erase, "Forget rows, for good")
    add("/v1/tasks/{task_id}/fast_table/rollback", "POST", desk.roll_back, "Serve another kept version")
    return routes


class _Desk:
    def __init__(  # noqa: PLR0913  what `task_routes` was given
        self,
        registry: Registry,
        teaching: Teaching,
        tending: Tending,
        timings: HostTimings,
        callers: Callers,
        limits: TaskLimits,
        about: Mapping[str, Any],
        *,
        clock: Callable[[], float],
    ) -> None:
        self._registry = registry
        self._teaching = teaching
        self._tending = tending
        self._timings = timings
        self._callers = callers
        self._limits = limits
        self._about = about
        self._clock = clock

    async def register(self, request: Request) -> Response:
        """Register a task.

        Answers 200 with the record when the fit ends within a few seconds, else 202.
        """
        caller = self._writer(request)
        replaces, unseen = _intent(request)
        value = await self._body(request)
        wanted = await asyncio.to_thread(
            read_registration,
            value,
            self._limits.max_examples,
            self._limits.max_state_chars,
            self._limits.max_rows,
        )
        done = await self._teaching.register(caller.tenant, wanted, replaces, unseen=unseen)
        self._log("register", caller, wanted.id)
        return await self._when_done(done, caller.tenant, wanted.id)

    async def certify(self, request: Request, task_id: str) -> Response:
        """Certify a task's table on examples that it was not fitted on."""
        caller = self._writer(request)
        replaces, _ = _intent(request)
        record = self._served(caller, task_id).record
        wanted = read_recertification(
            await self._body(request), record, self._limits.max_examples, self._limits.max_state_chars
        )
        done = await self._teaching.certify(caller.tenant, task_id, wanted, replaces)
        self._log("certify", caller, task_id)
        return await self._when_done(done, caller.tenant, task_id)

    async def list_all(self, request: Request) -> Response:
        """List the caller's tasks."""
        caller = self._caller(request, Right.READ)
        served = self._registry.all(caller.tenant)
        if request.query_params.get("full") == "1":
            whole = [export(one.record, await self._teaching.objects(one.record)) for one in served]
            return _json({**self._about, "tasks": whole})
        shown = [self._shown(one) for one in served]
        return _json({**self._about, "read_only": self._limits.read_only, "tasks": shown})

    async def show(self, request: Request, task_id: str) -> Response:
        """Show one task."""
        caller = self._caller(request, Right.READ)
        one = self._registry.get(caller.tenant, task_id)
        if one is not None:
            return _json(self._shown(one, await self._counts(one.record)))
        note = self._teaching.note(caller.tenant, task_id)
        if note is None or note.is_stale(self._clock()):
            raise TaskNotFound(task_id)
        return _json(_unmade(note, self._clock()))

    async def remove(self, request: Request, task_id: str) -> Response:
        """Remove a task; its decisions are no longer asked for."""
        caller = self._writer(request)
        await self._teaching.remove(caller.tenant, task_id, _intent(request)[0])
        self._log("remove", caller, task_id)
        return _json({"removed": task_id})

    async def label(self, request: Request, task_id: str) -> Response:
        """Keep labels of rows, for the certificates to come."""
        caller = self._writer(request)
        record = self._learner(caller, task_id)
        body = await self._body(request)
        labels = await asyncio.to_thread(read_labels, body, record, self._limits.max_examples)
        unknown = await self._tending.label(caller.tenant, task_id, labels)
        return _json({"labelled": len(labels) - len(unknown), "no_such_row": unknown})

    async def erase(self, request: Request, task_id: str) -> Response:
        """Forget rows and their labels."""
        caller = self._writer(request)
        self._learner(caller, task_id)
        rows = read_rows(await self._body(request), self._limits.max_examples)
        erased = await self._tending.erase(caller.tenant, task_id, rows)
        self._log(f"erase {len(rows)} rows", caller, task_id)
        return _json({"erased": erased})

    async def roll_back(self, request: Request, task_id: str) -> Response:
        """Serve another of the versions that are kept."""
        caller = self._writer(request)
        replaces, _ = _intent(request)
        version = read_version(await self._body(request))
        self._served(caller, task_id)
        record = await self._tending.roll_back(caller.tenant, task_id, version, replaces, caller.name)
        self._log(f"roll back to version {version}", caller, task_id)
        one = self._registry.get(caller.tenant, task_id)
        return _json(self._shown(one) if one is not None else public(record))

    async def bring(self, request: Request) -> Response:
        """Keep tasks from elsewhere."""
        caller = self._writer(request)
        replaces, unseen = _intent(request)
        tasks = read_import(await self._body(request), caller.tenant)
        await self._teaching.bring(caller.tenant, tasks, replaces, unseen=unseen)
        names = [one.record.id for one in tasks]
        self._log("import", caller, ", ".join(names))
        return _json({"loaded": names})

    async def _when_done(self, done: "asyncio.Future[TaskRecord]", tenant: str, task_id: str) -> Response:
        await asyncio.wait([done], timeout=self._limits.register_wait_s)
        if done.done():
            record = done.result()
            one = self._registry.get(tenant, task_id)
            if one is None:
                return _json(public(record))
            return _json(self._shown(one, await self._counts(one.record)))
        note = self._teaching.note(tenant, task_id)
        now = self._clock()
        shown = _unmade(note or Note(task_id, "learning", 0.0, now), now)
        return _json(shown, 202, {"Location": f"/v1/tasks/{quote(task_id, safe='')}"})

    async def _counts(self, record: TaskRecord) -> Mapping[str, int] | None:
        if not record.learns:
            return None
        try:
            return await self._tending.count(record)
        except StoreUnavailable:
            return None

    def _learner(self, caller: Caller, task_id: str) -> TaskRecord:
        record = self._served(caller, task_id).record
        if not record.learns:
            msg = "has no rows: it learns from examples; register it with fast_table.learn for that"
            raise InvalidRequest((Problem(("path", "task_id"), msg, "value_error"),))
        return record

    def _shown(self, one: Registered, counts: Mapping[str, int] | None = None) -> dict[str, Any]:
        seen = self._tending.watch(one.record.tenant, one.record.id)
        shown = view(one, seen, self._timings, counts)
        note = self._teaching.note(one.record.tenant, one.record.id)
        now = self._clock()
        if note is not None and not note.is_stale(now):
            shown["fit"] = note.public(now)
        return shown

    def _served(self, caller: Caller, task_id: str) -> Registered:
        one = self._registry.get(caller.tenant, task_id)
        if one is None:
            raise TaskNotFound(task_id)
        return one

    def _writer(self, request: Request) -> Caller:
        caller = self._caller(request, Right.TEACH)
        if self._limits.read_only:
            raise TasksReadOnly
        return caller

    def _caller(self, request: Request, right: Right) -> Caller:
        caller = self._callers.caller(request.scope["headers"])
        caller.require(right)
        return caller

    async def _body(self, request: Request) -> Any:  # noqa: ANN401  any JSON value
        encoding = content_encoding(request.scope["headers"])
        body = await read_body(request.receive, encoding, self._limits.body)
        value, _ = await asyncio.to_thread(decode, body)
        return value

    def _log(self, what: str, caller: Caller, names: str) -> None:
        audit.warning("%s by %s at %.3f: task %s", what, caller.name, self._clock(), ascii(names))


def _unmade(note: Note, now: float) -> dict[str, Any]:
    fit = note.public(now)
    if fit["state"] == "failed":
        status = {"state": State.OFF.value, "reason": fit["error"], "text": WORDS[State.OFF]}
    else:
        state = State(fit["state"])
        status = {"state": state.value, "reason": "it was registered just now", "text": WORDS[state]}
        status["progress"] = fit["progress"]
    return {"id": note.task, "status": status, "fit": fit}


def _intent(request: Request) -> tuple[int | None, bool]:
    """The version that a write replaces, as its caller says, and whether it replaces any."""
    unseen = request.query_params.get("replace")
    if unseen not in (None, "1"):
        raise InvalidRequest((Problem(("query", "replace"), "takes no other value than 1", "value_error"),))
    found = [(name, value) for name, value in request.scope["headers"] if name in REPLACES]
    if not found:
        return None, unseen is not None
    name, value = found[0]
    if len(found) > 1 or not value.isdigit() or len(value) > 15:
        raise InvalidHeader(name.decode(), "must be one whole number, the version that you replace")
    return int(value), unseen is not None


def _json(value: Any, status: int = 200, headers: dict[str, str] | None = None) -> Response:  # noqa: ANN401
    return Response(encode(value), status, headers, "application/json")
