"""Error to response, in one table; a test keeps it complete.

Two shapes, as clients of System One servers read them: a list of problems with status 422, or an `error_type`
with a message. Nothing a client sent is repeated except question ids and option names, which say where a
problem
is: cut short, and escaped so that they are inert in any page or log.
"""

import json
import math
from dataclasses import dataclass
from http import HTTPStatus
from typing import Any

from core.errors import (
    AmbiguousCredentials,
    BodyTooLarge,
    BodyTooSlow,
    ClientLeft,
    DeadlineExceeded,
    EngineFailed,
    EngineUnavailable,
    EvidenceExpired,
    FitFailed,
    Forbidden,
    InvalidHeader,
    InvalidRequest,
    MalformedBody,
    MissingCredentials,
    NotCached,
    OperatorError,
    Overloaded,
    PrecedentError,
    Problem,
    StateTooLong,
    StoreUnavailable,
    TaskBusy,
    TaskConflict,
    TaskNotFound,
    TasksReadOnly,
    UnknownModel,
    UnsupportedEncoding,
    UnsupportedFeature,
    UnsupportedMediaType,
    WrongCredentials,
)

Headers = list[tuple[bytes, bytes]]

MAX_PROBLEMS = 20
MAX_NAME_CHARS = 64
RETRY_AFTER_S = b"1"  # the official client gives up at once when asked to wait as long as its budget


@dataclass(frozen=True, slots=True)
class Meaning:
    """What an error is called on the wire."""

    status: int
    error_type: str
    headers: tuple[tuple[bytes, bytes], ...] = ()


_RETRY = ((b"retry-after", RETRY_AFTER_S),)
_ACCEPTED_TYPE = ((b"accept-post", b"application/json"),)
_HOW_TO_AUTHENTICATE = ((b"www-authenticate", b"Bearer"),)
_ACCEPTED_ENCODINGS = ((b"accept-encoding", b"zstd, gzip, identity"),)

MEANING: dict[type[PrecedentError], Meaning] = {
    MalformedBody: Meaning(422, "json_invalid"),
    InvalidRequest: Meaning(422, "validation_error"),
    InvalidHeader: Meaning(400, "api_usage_error"),
    EvidenceExpired: Meaning(409, "api_usage_error"),
    NotCached: Meaning(504, "not_found"),  # RFC 9111, section 5.2.1.7
    UnknownModel: Meaning(400, "api_usage_error"),
    UnsupportedFeature: Meaning(400, "api_usage_error"),
    BodyTooLarge: Meaning(413, "api_usage_error"),
    StateTooLong: Meaning(413, "max_tokens_exceeded"),
    UnsupportedEncoding: Meaning(415, "api_usage_error", _ACCEPTED_ENCODINGS),
    UnsupportedMediaType: Meaning(415, "api_usage_error", _ACCEPTED_TYPE),
    BodyTooSlow: Meaning(408, "api_usage_error", ((b"connection", b"close"),)),
    ClientLeft: Meaning(400, "api_usage_error"),
    MissingCredentials: Meaning(401, "authentication_error", _HOW_TO_AUTHENTICATE),
    WrongCredentials: Meaning(401, "authentication_error", _HOW_TO_AUTHENTICATE),
    AmbiguousCredentials: Meaning(400, "authentication_error"),
    Forbidden: Meaning(403, "authentication_error"),
    TaskNotFound: Meaning(404, "not_found"),
    TaskConflict: Meaning(409, "api_usage_error"),
    TaskBusy: Meaning(409, "api_usage_error"),
    TasksReadOnly: Meaning(409, "api_usage_error"),
    FitFailed: Meaning(503, "upstream_error", _RETRY),
    EngineUnavailable: Meaning(503, "overloaded_error", _RETRY),
    EngineFailed: Meaning(503, "upstream_error", _RETRY),
    DeadlineExceeded: Meaning(503, "overloaded_error", _RETRY),
    StoreUnavailable: Meaning(503, "overloaded_error", _RETRY),
    Overloaded: Meaning(429, "rate_limit_error"),
    OperatorError: Meaning(500, "internal_error"),
}

_ESCAPES = str.maketrans({"<": "\\u003c", ">": "\\u003e", "&": "\\u0026"})


def error_response(error: PrecedentError) -> tuple[int, bytes, Headers]:
    """Status, body and headers for an error."""
    meaning = next(MEANING[kind] for kind in type(error).__mro__ if kind in MEANING)
    headers = list(meaning.headers)
    if isinstance(error, Overloaded):
        headers.append((b"retry-after", b"%d" % math.ceil(error.retry_after_s)))
    return meaning.status, error_body(_detail(error, meaning)), headers


def error_result(error: PrecedentError) -> bytes:
    """An error as the result of one item of a batch: the status and detail it would have had alone."""
    status, body, _ = error_response(error)
    return b'{"error":{"status":%d,%b}' % (status, body[1:])


def plain_error(status: int, error_type: str, message: str) -> tuple[int, bytes]:
    """Status and body of an error that has no class, such as an unknown path."""
    return status, error_body({"error_type": error_type, "message": message})


def error_for_status(status: int) -> tuple[int, bytes]:
    """Status and body for what the web framework itself refuses."""
    kind = "not_found" if status == HTTPStatus.NOT_FOUND else "api_usage_error"
    return plain_error(status, kind, HTTPStatus(status).phrase)


def error_body(detail: Any) -> bytes:  # noqa: ANN401  either of the two shapes
    """The JSON of an error; ASCII only, without characters that mean something in HTML."""
    return json.dumps({"detail": detail}, separators=(",", ":")).translate(_ESCAPES).encode()


def _detail(error: PrecedentError, meaning: Meaning) -> Any:  # noqa: ANN401
    if isinstance(error, MalformedBody):
        at = ["body", error.position]
        found = {"loc": at, "msg": "JSON decode error", "type": "json_invalid", "input": {}}
        return [{**found, "ctx": {"error": str(error)}}]
    if isinstance(error, InvalidRequest):
        return [_problem(problem) for problem in error.problems[:MAX_PROBLEMS]]
    if isinstance(error, OperatorError):
        return {"error_type": meaning.error_type, "message": "the service is misconfigured; see its log"}
    if isinstance(error, TaskConflict):
        versions = {"store_version": error.store_version, "your_version": error.your_version}
        more = {"kind": "version_conflict", "task": error.task, **versions}
    else:
        more = {}
    return {"error_type": meaning.error_type, "message": str(error), **more}


def _problem(problem: Problem) -> dict[str, Any]:
    loc = [part[:MAX_NAME_CHARS] if isinstance(part, str) else part for part in problem.loc]
    return {"loc": loc, "msg": problem.msg, "type": problem.type}
