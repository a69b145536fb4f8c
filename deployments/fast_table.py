"""Sentence vectors for the tables that need them. Everything worth testing lives in the encoder."""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import numpy.typing as npt

from core.cache.together import Together
from core.engines.artefact import encoder_digest_of, read_manifest
from core.errors import (
    ArtefactMismatch,
    EngineFailed,
    EngineUnavailable,
    FingerprintMismatch,
    SettingsError,
)
from deployments.remote_engine import translated

Vector = npt.NDArray[np.float32]  # (dim,)
CallEncoder = Callable[[list[str]], Awaitable[list[Vector]]]


class FastTable:
    """Turn texts into vectors.

    Args:
        model_dir: the embedded model.
        expected_digest: of the encoder that the app was built for.
        threads: CPU threads of this replica.

    Raises:
        FingerprintMismatch: the files on this node make another encoder, whose vectors no certificate covers.
    """

    def __init__(self, model_dir: str, expected_digest: str, threads: int) -> None:
        folder = Path(model_dir)
        found = encoder_digest_of(read_manifest(folder))
        if found != expected_digest:
            raise FingerprintMismatch(expected_digest, found)
        # Only this process pays for the runtime.
        from core.engines.embedded import Encoder  # noqa: PLC0415

        self._encode = Encoder(folder, threads).encode
        self._thread = ThreadPoolExecutor(1, "encoder")

    async def encode(self, texts: Sequence[str]) -> list[Vector]:
        """The vector of each text, in order."""
        loop = asyncio.get_running_loop()
        return await loop.run_in_executor(self._thread, lambda: [self._encode(text).vector for text in texts])


class RemoteEncoder:
    """The FastTable replicas as a Router sees them; texts that arrive together travel together.

    Args:
        call: sends texts to one replica.
        deadline_s: after which the engine is asked instead.
    """

    def __init__(self, call: CallEncoder, deadline_s: float) -> None:
        self._call = call
        self._deadline_s = deadline_s
        self._together: Together[str, Vector | Exception] = Together(self._encode)

    async def encode(self, texts: Sequence[str]) -> list[Vector]:
        """The vector of each text, in order.

        Raises:
            EngineUnavailable: no replica answered in time.
            EngineFailed: one answered nonsense.
        """
        found = await asyncio.gather(*(self._together.call(text) for text in texts))
        vectors = []
        for vector in found:
            if isinstance(vector, Exception):
                raise vector
            vectors.append(vector)
        return vectors

    async def warm(self, wait_s: float) -> None:
        """Wait until a replica answers.

        Raises:
            EngineUnavailable: none did in time.
        """
        try:
            async with asyncio.timeout(wait_s):
                await self._call(["warm"])
        except Exception as error:
            raise EngineUnavailable(f"no FastTable replica within {wait_s:g} s") from error

    async def _encode(self, texts: Sequence[str]) -> Sequence[Vector | Exception]:
        try:
            async with asyncio.timeout(self._deadline_s):
                vectors = await self._call(list(texts))
        except TimeoutError:
            return [EngineUnavailable(f"no sentence vector within {self._deadline_s:g} s")] * len(texts)
        except Exception as error:  # whatever it is, there is no vector
            return [translated(error)] * len(texts)
        if len(vectors) != len(texts):
            return [EngineFailed(f"{len(vectors)} vectors for {len(texts)} texts")] * len(texts)
        return vectors


def encoder_here(model_dir: str | None) -> str | None:
    """Digest of the encoder that was prepared on this node; None without one."""
    if model_dir is None:
        return None
    try:
        return encoder_digest_of(read_manifest(Path(model_dir)))
    except (SettingsError, ArtefactMismatch):
        return None
