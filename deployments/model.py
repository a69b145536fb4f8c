"""One engine in one replica. Everything worth testing lives in the engine."""

from collections.abc import Callable, Sequence

from core.engines import registry
from core.engines.base import Engine, Item, Reading
from core.engines.registry import EngineSpec
from core.errors import EngineFailed, FingerprintMismatch, PrecedentError


class Model:
    """Serve one engine.

    Args:
        spec: the engine to load.
        expected_fingerprint: the fingerprint of the engine that the app was built for.
        load: makes the engine.

    Raises:
        FingerprintMismatch: the files on this node make another engine, whose answers must not mix with the
            others'. Raised here, it keeps the replica from ever becoming healthy.
    """

    def __init__(
        self,
        spec: EngineSpec,
        expected_fingerprint: str,
        load: Callable[[EngineSpec], Engine] = registry.load,
    ) -> None:
        self._engine = load(spec)
        if self._engine.fingerprint != expected_fingerprint:
            raise FingerprintMismatch(expected_fingerprint, self._engine.fingerprint)
        # Serve awaits this once the last call has ended. On the class, Python would call it too.
        self.__del__ = self._engine.close

    async def answer(self, items: Sequence[Item]) -> list[Reading | Exception]:
        """Answer each item, in order."""
        return [portable(reading) for reading in await self._engine.answer(items)]

    async def check_health(self) -> None:
        """Raise when the engine can answer no more; Serve then replaces this replica."""
        await self._engine.check_health()


def portable(reading: Reading | Exception) -> Reading | Exception:
    """The same, able to cross processes: an error of somebody else's may not survive pickling."""
    if isinstance(reading, Reading | PrecedentError):
        return reading
    return EngineFailed(type(reading).__name__)
