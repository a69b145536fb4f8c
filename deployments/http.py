"""The HTTP surface of a Router: one plain hot route, and everything else behind a documented application.

The hot route has no dependency solving and no schema library on its path, since those cost as much as the
rest of a replay together. The slow routes and the OpenAPI document live in `deployments.pages`.
"""

import itertools
import logging
import os
from collections.abc import Awaitable, Callable, Iterable, MutableMapping, Sequence
from typing import Any

from core.contract.terms import PLAIN, Terms, read_terms
from core.errors import ClientLeft, PrecedentError, UnsupportedMediaType
from core.identity import Identity
from core.outcome import Outcome
from core.routing import Decider, Lane
from deployments.auth import Callers, Right
from deployments.bodies import BodyLimits, Receive, read_body
from deployments.caching import outcome_headers, replay_headers
from deployments.http_errors import Headers, error_for_status, error_response, error_result, plain_error

Scope = MutableMapping[str, Any]
Send = Callable[[MutableMapping[str, Any]], Awaitable[None]]
AsgiApp = Callable[[Scope, Receive, Send], Awaitable[None]]
Reply = tuple[int, bytes, Headers]
Route = Callable[[Scope, Receive], Awaitable[Reply]]

log = logging.getLogger("ray.serve.precedent")

ONE = "/v1/systemone"
BATCH = "/v1/systemone/batch"


class HttpApp:
    """An ASGI application that answers decisions itself and passes other paths on.

    Args:
        decider: settles requests.
        pages: answers every other path.
        callers: whose request it is.
        deployment: a part of every key.
        limits: applied to bodies.
        clock: Unix seconds.
    """

    def __init__(
        self,
        decider: Decider,
        pages: AsgiApp,
        callers: Callers,
        deployment: str,
        limits: BodyLimits,
        clock: Callable[[], float],
    ) -> None:
        self._decider = decider
        self._pages = pages
        self._callers = callers
        self._deployment = deployment
        self._limits = limits
        self._clock = clock
        self._plain_lanes: dict[str, Lane] = {}  # by tenant
        self._routes: dict[str, Route] = {ONE: self._decide, BATCH: self._decide_batch}
        self._prefix = os.urandom(8).hex().encode()
        self._counter = itertools.count()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request, or take part in start-up and shut-down."""
        if scope["type"] != "http":
            await self._pages(scope, receive, send)
            return
        request_id = b"%b%08x" % (self._prefix, next(self._counter))
        answer = self._routes.get(scope["path"])
        if answer is None:
            await self._pages(scope, receive, _with_request_id(send, request_id))
            return
        reply = await self._reply(answer, scope, receive)
        if reply is None:
            return
        status, body, headers = reply
        headers += [
            (b"content-type", b"application/json"),
            (b"content-length", b"%d" % len(body)),
            (b"x-typesafe-request-id", request_id),
        ]
        await send({"type": "http.response.start", "status": status, "headers": headers})
        await send({"type": "http.response.body", "body": body})

    async def _reply(self, answer: Route, scope: Scope, receive: Receive) -> Reply | None:
        if scope["method"] != "POST":
            return *error_for_status(405), [(b"allow", b"POST")]
        try:
            return await answer(scope, receive)
        except ClientLeft:
            return None
        except PrecedentError as error:
            return error_response(error)
        except Exception:
            log.exception("a request failed in a way that nobody foresaw")
            return *plain_error(500, "internal_error", "the server failed; its log says how"), []

    async def _decide(self, scope: Scope, receive: Receive) -> Reply:
        lane, terms, body = await self._read(scope, receive)
        now = self._clock()
        decision = self._decider.replay(body, lane, now, terms)
        if decision is not None:
            return 200, decision.replay(now, terms.noul_thresholds), replay_headers(decision, now)
        outcome = await self._decider.decide(body, lane, terms)
        now = self._clock()
        return 200, outcome.body(now, terms.noul_thresholds), outcome_headers(outcome, terms, now)

    async def _decide_batch(self, scope: Scope, receive: Receive) -> Reply:
        lane, terms, body = await self._read(scope, receive)
        outcomes = await self._decider.decide_batch(body, lane, terms)
        return 200, batch_body(outcomes, terms, self._clock()), []

    async def _read(self, scope: Scope, receive: Receive) -> tuple[Lane, Terms, bytes]:
        headers = scope["headers"]
        caller = self._callers.caller(headers)
        caller.require(Right.DECIDE)
        terms = read_terms(headers)
        body = await read_body(receive, content_encoding(headers), self._limits)
        return self._lane(caller.tenant, terms), terms, body

    def _lane(self, tenant: str, terms: Terms) -> Lane:
        if terms is not PLAIN:
            return self._decider.lane(Identity(tenant, self._deployment, terms.evidence, terms.contract))
        lane = self._plain_lanes.get(tenant)
        if lane is None:
            lane = self._plain_lanes[tenant] = self._decider.lane(Identity(tenant, self._deployment))
        return lane


def batch_body(outcomes: Sequence[Outcome | PrecedentError], terms: Terms, now: float) -> bytes:
    """The response of a batch: one result per item, in order, each what the item alone would have got."""
    results, input_tokens, output_tokens = [], 0, 0
    for outcome in outcomes:
        if isinstance(outcome, PrecedentError):
            results.append(error_result(outcome))
            continue
        results.append(outcome.body(now, terms.noul_thresholds))
        input_tokens += outcome.usage[0]
        output_tokens += outcome.usage[1]
    usage = b'{"input_tokens":%d,"output_tokens":%d}' % (input_tokens, output_tokens)
    return b'{"results":[%b],"total_usage":%b}' % (b",".join(results), usage)


def content_encoding(headers: Iterable[tuple[bytes, bytes]]) -> bytes:
    """The Content-Encoding in lower case; empty when absent.

    Raises:
        UnsupportedMediaType: a Content-Type other than JSON. None at all is taken for JSON; a form's type,
            which browsers may send across sites without asking, never is.
    """
    encoding = b""
    for name, value in headers:
        if name == b"content-encoding":
            encoding = value.strip().lower()
        elif name == b"content-type" and not _is_json(value):
            raise UnsupportedMediaType
    return encoding


def _is_json(content_type: bytes) -> bool:
    media_type = content_type.split(b";", 1)[0].strip().lower()
    return media_type == b"application/json" or (
        media_type.startswith(b"application/") and media_type.endswith(b"+json")
    )


def _with_request_id(send: Send, request_id: bytes) -> Send:
    async def send_with_id(message: MutableMapping[str, Any]) -> None:
        if message["type"] == "http.response.start":
            message["headers"] = [*message.get("headers", ()), (b"x-typesafe-request-id", request_id)]
        await send(message)

    return send_with_id
