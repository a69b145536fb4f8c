"""Every error raised on purpose, in one tree.

    PrecedentError
    ├── CallerError            the caller must change the request
    │   ├── MalformedBody        the bytes are not acceptable JSON
    │   ├── InvalidRequest       acceptable JSON that breaks the contract
    │   ├── InvalidHeader        a header that does not say what it should
    │   ├── EvidenceExpired      evidence that was no longer valid when the request came
    │   ├── NotCached            only a stored decision was wanted, and there is none
    │   ├── UnknownModel         a model name that is not served here
    │   ├── UnsupportedFeature   a member that this server does not implement
    │   ├── BodyTooLarge         too many bytes, before or after decompression
    │   ├── StateTooLong         more text than a request may carry
    │   ├── UnsupportedEncoding  a Content-Encoding that cannot be undone
    │   ├── UnsupportedMediaType a body that is not JSON by its own declaration
    │   ├── BodyTooSlow          a body that took too long to arrive
    │   ├── ClientLeft           the connection closed before the body was whole
    │   ├── MissingCredentials   no API key
    │   ├── WrongCredentials     an API key that is not known here
    │   ├── AmbiguousCredentials more than one Authorization header
    │   ├── Forbidden            an API key that does not allow this
    │   ├── TaskNotFound         a task that is not registered
    │   ├── TaskConflict         somebody else wrote the task meanwhile
    │   ├── TaskBusy             a task that is being fitted already
    │   └── TasksReadOnly        tasks are not written here
    ├── RetryLater             the same request may succeed later
    │   ├── FitFailed            a fit whose process went down
    │   ├── EngineUnavailable    no engine could be reached in time
    │   ├── EngineFailed         the engine raised, or answered nonsense
    │   ├── DeadlineExceeded     the work took longer than the request may wait
    │   ├── StoreUnavailable     the store did not answer
    │   └── Overloaded           more callers wait than this server takes
    └── OperatorError          somebody who runs the service must act
        ├── SettingsError        an impossible or misspelt setting
        ├── ArtefactMismatch     a file that is not what its manifest says
        └── FingerprintMismatch  a replica that would answer for another engine

Each error passes all its arguments to the base class, positionally, so that it survives pickling between
processes, and builds its sentence in `__str__`: what is wrong, both values, what to do.
"""

from dataclasses import dataclass


class PrecedentError(Exception):
    """Root of the tree."""


class CallerError(PrecedentError):
    """The caller must change the request; no retry will help."""


class RetryLater(PrecedentError):
    """The request is fine and may succeed later."""


class OperatorError(PrecedentError):
    """Somebody who runs the service must act."""


@dataclass(frozen=True, slots=True)
class Problem:
    """One violation of the contract: where, what, and its stable machine name."""

    loc: tuple[str | int, ...]
    msg: str
    type: str


class MalformedBody(CallerError):
    """The bytes of a body are not JSON that this server accepts.

    Args:
        problem: a fixed sentence that never contains text of the body.
        position: character offset of the problem, 0 when it has none.
    """

    def __init__(self, problem: str, position: int = 0) -> None:
        super().__init__(problem, position)
        self.problem, self.position = problem, position

    def __str__(self) -> str:
        return f"the body is not acceptable JSON: {self.problem}"


class InvalidRequest(CallerError):
    """A JSON body that breaks the contract in at least one place."""

    def __init__(self, problems: tuple[Problem, ...]) -> None:
        super().__init__(problems)
        self.problems = problems

    def __str__(self) -> str:
        return "; ".join(f"{'.'.join(map(str, p.loc))}: {p.msg}" for p in self.problems)


class InvalidHeader(CallerError):
    """A header that does not say what it should."""

    def __init__(self, header: str, problem: str) -> None:
        super().__init__(header, problem)
        self.header, self.problem = header, problem

    def __str__(self) -> str:
        return f"the header {self.header} {self.problem}"


class EvidenceExpired(CallerError):
    """The evidence behind a request was no longer valid when the request came; no engine was asked."""

    def __init__(self, valid_until: float, now: float) -> None:
        super().__init__(valid_until, now)
        self.valid_until, self.now = valid_until, now

    def __str__(self) -> str:
        return (
            f"the evidence was valid until {self.valid_until:.3f} and it is {self.now:.3f} (Unix seconds); "
            "fetch it again and send its new revision and validity"
        )


class NotCached(CallerError):
    """The caller wanted a stored decision or nothing, and there is none."""

    def __init__(self) -> None:
        super().__init__()

    def __str__(self) -> str:
        return "no decision that would do is stored; send the request without only-if-cached to have one made"


class UnknownModel(CallerError):
    """The model named in a request is not served here."""

    def __init__(self, served: tuple[str, ...]) -> None:
        super().__init__(served)
        self.served = served

    def __str__(self) -> str:
        return (
            f"this model is not served here; use one of {', '.join(self.served)} (names are case-sensitive)"
        )


class UnsupportedFeature(CallerError):
    """A request asks for something that this server does not do."""

    def __init__(self, member: str, advice: str) -> None:
        super().__init__(member, advice)
        self.member, self.advice = member, advice

    def __str__(self) -> str:
        return f"{self.member} is not supported: {self.advice}"


class BodyTooLarge(CallerError):
    """A body is larger than the limit, as sent or once decompressed."""

    def __init__(self, limit_bytes: int) -> None:
        super().__init__(limit_bytes)
        self.limit_bytes = limit_bytes

    def __str__(self) -> str:
        return f"the body has more than {self.limit_bytes} bytes, as sent or decompressed; send less at once"


class StateTooLong(CallerError):
    """The state holds more text than one request may carry."""

    def __init__(self, chars: int, limit_chars: int) -> None:
        super().__init__(chars, limit_chars)
        self.chars, self.limit_chars = chars, limit_chars

    def __str__(self) -> str:
        return (
            f"the state has {self.chars} characters and {self.limit_chars} are allowed; shorten or split it"
        )


class UnsupportedEncoding(CallerError):
    """A Content-Encoding that cannot be undone, or a body that does not match it."""

    def __init__(self, problem: str) -> None:
        super().__init__(problem)
        self.problem = problem

    def __str__(self) -> str:
        return f"{self.problem}; send the body as zstd, gzip or identity"


class UnsupportedMediaType(CallerError):
    """A body that declares itself to be something other than JSON."""

    def __init__(self) -> None:
        super().__init__()

    def __str__(self) -> str:
        return "the body must be JSON; send the header Content-Type: application/json"


class BodyTooSlow(CallerError):
    """A body that took longer to arrive than it may."""

    def __init__(self, limit_s: float) -> None:
        super().__init__(limit_s)
        self.limit_s = limit_s

    def __str__(self) -> str:
        return f"the body did not arrive within {self.limit_s:g} s; send it faster, or less of it"


class ClientLeft(CallerError):
    """The connection closed before the body was whole; nobody reads an answer."""

    def __init__(self) -> None:
        super().__init__()

    def __str__(self) -> str:
        return "the client closed the connection before its body was whole"


class MissingCredentials(CallerError):
    """A request without an API key, where one is needed."""

    def __init__(self) -> None:
        super().__init__()

    def __str__(self) -> str:
        return "an API key is needed; send it as Authorization: Bearer <key>"


class WrongCredentials(CallerError):
    """An API key that is not known here."""

    def __init__(self) -> None:
        super().__init__()

    def __str__(self) -> str:
        return "this API key is not known here; check it, or ask who runs the service for one"


class AmbiguousCredentials(CallerError):
    """More than one Authorization header."""

    def __init__(self) -> None:
        super().__init__()

    def __str__(self) -> str:
        return "the request has more than one Authorization header; send exactly one"


class Forbidden(CallerError):
    """An API key that does not allow what was asked.

    Args:
        lacking: what it would have to allow, in words.
    """

    def __init__(self, lacking: str) -> None:
        super().__init__(lacking)
        self.lacking = lacking

    def __str__(self) -> str:
        return f"this API key does not allow {self.lacking}; ask who runs the service for one that does"


class TaskNotFound(CallerError):
    """No task is registered under this id."""

    def __init__(self, task: str) -> None:
        super().__init__(task)
        self.task = task

    def __str__(self) -> str:
        return f"no task {self.task[:64]!r} is registered; register it with POST /v1/tasks, or name none"


class TaskConflict(CallerError):
    """A task was written by somebody else since the caller last saw it; nothing was changed."""

    def __init__(self, task: str, store_version: int, your_version: int) -> None:
        super().__init__(task, store_version, your_version)
        self.task, self.store_version, self.your_version = task, store_version, your_version

    def __str__(self) -> str:
        return (
            f"task {self.task!r} has version {self.store_version} and yours was made from "
            f"{self.your_version}; look at it, then send x-precedent-replaces: {self.store_version}, or "
            "replace=1 to replace it unseen"
        )


class TaskBusy(CallerError):
    """A task that is being fitted; one fit at a time."""

    def __init__(self, task: str) -> None:
        super().__init__(task)
        self.task = task

    def __str__(self) -> str:
        return f"task {self.task!r} is being fitted; GET /v1/tasks/{self.task} shows how far it is"


class TasksReadOnly(CallerError):
    """This server does not write tasks."""

    def __init__(self) -> None:
        super().__init__()

    def __str__(self) -> str:
        return "tasks are not written here (tasks.read_only); ask a server that may, or change the setting"


class FitFailed(RetryLater):
    """The process that fitted a task's table ended without one; what was there before is served on."""

    def __init__(self, task: str, why: str) -> None:
        super().__init__(task, why)
        self.task, self.why = task, why

    def __str__(self) -> str:
        return f"the fit of task {self.task!r} ended without a table: {self.why}; register it again"


class EngineUnavailable(RetryLater):
    """No engine could be reached within the request's deadline."""

    def __init__(self, why: str) -> None:
        super().__init__(why)
        self.why = why

    def __str__(self) -> str:
        return f"no engine answered: {self.why}; retry shortly"


class EngineFailed(RetryLater):
    """The engine raised, or returned something that is no answer; nothing was stored."""

    def __init__(self, why: str) -> None:
        super().__init__(why)
        self.why = why

    def __str__(self) -> str:
        return f"the engine failed: {self.why}; nothing was stored"


class DeadlineExceeded(RetryLater):
    """A computation took longer than a request may wait for it."""

    def __init__(self, deadline_s: float) -> None:
        super().__init__(deadline_s)
        self.deadline_s = deadline_s

    def __str__(self) -> str:
        return f"no answer within {self.deadline_s:g} s; retry shortly"


class StoreUnavailable(RetryLater):
    """The store did not do what it was asked. Decisions go on without it."""

    def __init__(self, operation: str, why: str) -> None:
        super().__init__(operation, why)
        self.operation, self.why = operation, why

    def __str__(self) -> str:
        return f"the store failed at {self.operation}: {self.why}"


class Overloaded(RetryLater):
    """More callers wait than this server takes; nothing was begun for this one.

    Args:
        why: what is full, in words.
        retry_after_s: after how many seconds it is worth asking again.
    """

    def __init__(self, why: str, retry_after_s: float) -> None:
        super().__init__(why, retry_after_s)
        self.why, self.retry_after_s = why, retry_after_s

    def __str__(self) -> str:
        return f"{self.why}; retry in {self.retry_after_s:g} s"


class SettingsError(OperatorError):
    """A setting that is misspelt, out of range, or impossible beside another."""

    def __init__(self, setting: str, problem: str) -> None:
        super().__init__(setting, problem)
        self.setting, self.problem = setting, problem

    def __str__(self) -> str:
        return f"{self.setting}: {self.problem}"


class ArtefactMismatch(OperatorError):
    """A file is not the one that its manifest or its pin names."""

    def __init__(self, what: str, expected: str, found: str, advice: str) -> None:
        super().__init__(what, expected, found, advice)
        self.what, self.expected, self.found, self.advice = what, expected, found, advice

    def __str__(self) -> str:
        return f"{self.what} should have digest {self.expected} and has {self.found}; {self.advice}"


class FingerprintMismatch(OperatorError):
    """A replica loaded an engine other than the one the app was built for."""

    def __init__(self, expected: str, found: str) -> None:
        super().__init__(expected, found)
        self.expected, self.found = expected, found

    def __str__(self) -> str:
        return (
            f"the app was built for engine {self.expected} and this replica loaded {self.found}; "
            "give every node the same model files, or redeploy the app so that all take the new ones"
        )
