"""The engine as a Router sees it: behind a handle, in another process."""

from collections.abc import Awaitable, Callable, Sequence

import grpc
from ray.exceptions import RayActorError, RayError, RayTaskError
from ray.serve.exceptions import BackPressureError, DeploymentUnavailableError, RayServeException

from core.engines.base import Item, Limits, Reading
from core.engines.registry import EngineIdentity
from core.errors import EngineFailed, EngineUnavailable, PrecedentError

CallModel = Callable[[list[Item]], Awaitable[list[Reading | Exception]]]


class RemoteEngine:
    """An `Engine` whose work is done by a Model replica.

    A crashed replica receives calls until it is noticed. A decision may be computed twice without harm, since
    the first one stored wins: so a call that a crash ended is made once more, on another replica.

    Args:
        identity: the engine that every Model replica must have loaded.
        call: sends items to one replica.
    """

    batch_invariant = True

    def __init__(self, identity: EngineIdentity, call: CallModel) -> None:
        self.name = identity.name
        self.fingerprint = identity.fingerprint
        self.limits = Limits(identity.max_tokens)
        self._call = call

    async def answer(self, items: Sequence[Item]) -> list[Reading | Exception]:
        """Answer each item, in order.

        Raises:
            EngineUnavailable: no replica took the call, or two crashed in a row.
            EngineFailed: the call ended in an error that is not one of ours.
        """
        try:
            return await self._call(list(items))
        except (RayActorError, grpc.RpcError):
            return await self._retry(list(items))
        except Exception as error:
            raise translated(error) from error

    async def check_health(self) -> None:
        """Serve watches the replicas."""

    async def close(self) -> None:
        """Nothing is held here: Serve owns the replicas."""

    async def _retry(self, items: list[Item]) -> list[Reading | Exception]:
        try:
            return await self._call(items)
        except Exception as error:
            raise translated(error) from error


def translated(error: Exception) -> PrecedentError:
    """The error of ours that stands for one of Ray's; the only gate through which those pass."""
    cause = error.cause if isinstance(error, RayTaskError) else error
    if isinstance(cause, PrecedentError):
        return cause
    if isinstance(cause, BackPressureError):
        return EngineUnavailable("every replica's queue is full")
    if isinstance(cause, DeploymentUnavailableError):
        return EngineUnavailable("no replica of the model is running")
    if isinstance(cause, RayActorError | grpc.RpcError):
        return EngineUnavailable("the replica stopped while it worked")
    if isinstance(cause, RayError | RayServeException):
        return EngineUnavailable(type(cause).__name__)
    return EngineFailed(type(cause).__name__)
