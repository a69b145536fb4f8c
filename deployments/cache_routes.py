"""`/v1/cache`: what the cache did for a tenant, and purging it."""

import logging
import time
from collections.abc import Callable
from dataclasses import asdict, replace
from typing import Any

from fastapi import APIRouter, Request
from fastapi.responses import Response

from core.cache.cache import DecisionCache
from core.cache.fences import Scope
from core.contract.strict_json import encode
from core.errors import Forbidden, InvalidRequest, Problem
from deployments import schema
from deployments.auth import ANYBODY, Caller, Callers, Right

audit = logging.getLogger("ray.serve.precedent.audit")

EVERYWHERE = "here now, on every other Router within 1 s"
HERE_ONLY = "here now; the store did not answer, and other Routers learn of it from this one when it does"
REFUSALS: dict[int | str, dict[str, Any]] = {
    401: {"model": schema.Error, "description": "No API key, or one that is not known here"},
    403: {"model": schema.Error, "description": "An API key that does not allow this"},
}
PURGE_RESPONSES: dict[int | str, dict[str, Any]] = {
    202: {"description": "In force on this Router only, until the store answers again"},
    422: {
        "model": schema.ValidationErrors,
        "description": "No filter, an unknown one, or `all` beside others",
    },
}
REPORT_DESCRIPTION = """\
Counters since this Router started. Without API keys there is also what it does at this moment, all of which
returns to 0: `in_flight`, requests that are looked up or computed, equal ones counted once; `computing`,
those with a place among `admission.max_computing`; `coalescer.running`, those that other Routers may wait
for; `coalescer.waiting`, those that wait for another Router. The other numbers of `coalescer` are counters:
each of `claims` ends as one of `runs`, `coalesced`, `takeovers`, `uncoordinated`, `sheds` and `left`."""
FILTERS = ("tenant", "deployment", "evidence", "contract", "task", "table_version")


def cache_routes(
    cache: DecisionCache,
    callers: Callers,
    coalesced: Callable[[str | None], int],
    under_way: Callable[[], dict[str, Any]],
    clock: Callable[[], float] = time.time,
) -> APIRouter:
    """The routes over one Router's cache.

    Args:
        cache: this Router's.
        callers: whose request it is.
        coalesced: how many callers of a tenant, or of all, waited for somebody else's computation.
        under_way: what this Router does at this moment for all tenants, told to whoever may see them all.
        clock: Unix seconds.
    """
    routes = APIRouter()

    @routes.get(
        "/v1/cache",
        responses=REFUSALS,
        summary="What this Router's cache did for your tenant",
        description=REPORT_DESCRIPTION,
    )
    async def report(request: Request) -> Response:
        caller = _caller(callers, request, Right.READ)
        report = await _report(cache, caller, coalesced, clock())
        return _json(report | under_way() if _sees_all(caller) else report)

    @routes.delete(
        "/v1/cache",
        responses={**REFUSALS, **PURGE_RESPONSES},
        openapi_extra={"parameters": [*map(_filter, (*FILTERS, "all"))]},
        summary="Fence off stored decisions: none of them is replayed again",
    )
    async def purge(request: Request) -> Response:
        caller = _caller(callers, request, Right.PURGE)
        scope = read_scope(request.query_params.multi_items(), caller)
        now = clock()
        purged = await cache.purge(scope, now)
        fenced = _named(purged.scope)
        audit.warning("purge by %s at %.3f: %s, epoch %s", caller.name, now, ascii(fenced), purged.epoch)
        told = purged.epoch is not None
        answer = {"fenced": fenced, "epoch": purged.epoch, "in_force": EVERYWHERE if told else HERE_ONLY}
        return _json(answer, 200 if told else 202)

    return routes


def read_scope(pairs: list[tuple[str, str]], caller: Caller) -> Scope:
    """The scope that a purge's query asks for, kept inside the caller's tenant.

    Raises:
        InvalidRequest: an unknown or doubled filter, no filter at all, or `all` beside others.
        Forbidden: another tenant's decisions.
    """
    given = dict(pairs)
    unknown = sorted(given.keys() - {*FILTERS, "all"})
    if unknown or len(given) != len(pairs):
        raise _invalid(f"filters are {', '.join(FILTERS)} and all=true, each at most once")
    everything = given.pop("all", None)
    if everything not in (None, "true"):
        raise _invalid("all takes no other value than true")
    if any(not value for value in given.values()):
        raise _invalid("a filter has no value; leave it out, or spell out all=true")
    filters = {name: given.get(name) for name in FILTERS}
    scope = Scope(**filters, everything=everything is not None)  # refuses none, and all beside others
    if caller is ANYBODY:
        return scope
    if scope.tenant not in (None, caller.tenant):
        raise Forbidden("to purge another tenant")
    return replace(scope, tenant=caller.tenant, everything=False)


async def _report(
    cache: DecisionCache, caller: Caller, coalesced: Callable[[str | None], int], now: float
) -> dict[str, Any]:
    tenant = None if _sees_all(caller) else caller.tenant
    stats = cache.stats(tenant)
    report: dict[str, Any] = {
        "tenant": caller.tenant,
        "hits": stats.hits,
        **asdict(stats.tally),
        "coalesced": coalesced(tenant),
        "errors": stats.errors,
        "evictions": stats.evictions,
        "store": {"reading": stats.reading, "writing": stats.writing, "timeouts": stats.timeouts},
        "memory_entries": stats.entries,
    }
    if tenant is None:  # how much others keep is nobody else's business
        report |= {"entries": await cache.count(now), "oddities": asdict(stats.oddities)}
    return report


def _sees_all(caller: Caller) -> bool:
    return caller is ANYBODY


def _caller(callers: Callers, request: Request, right: Right) -> Caller:
    caller = callers.caller(request.scope["headers"])
    caller.require(right)
    return caller


def _named(scope: Scope) -> dict[str, Any]:
    return {"all": True} if scope.everything else dict(scope.members())


def _invalid(msg: str) -> InvalidRequest:
    return InvalidRequest((Problem(("query",), msg, "value_error"),))


def _json(value: dict[str, Any], status: int = 200) -> Response:
    return Response(encode(value), status, media_type="application/json")


def _filter(name: str) -> dict[str, Any]:
    text = "Everything of your tenant; stands alone." if name == "all" else f"Decisions of this {name} only."
    kind = {"type": "string", "enum": ["true"]} if name == "all" else {"type": "string", "minLength": 1}
    return {"name": name, "in": "query", "required": False, "schema": kind, "description": text}
