"""Fitting and certifying in a process of its own, away from the Routers."""

import os
import queue
import threading
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import ray

from core.errors import PrecedentError
from core.tasks.lesson import Lesson

FIT_NICENESS = 10  # the CPU is for those who serve


@dataclass(frozen=True, slots=True)
class Wanted:
    """What a lesson is to be learned by."""

    kind: str  # "static", "encoder" or "auto"
    static_model: str
    models_dir: str
    encoder_dir: str  # the embedded model
    recertify: tuple[bytes, bytes] | None = None  # table and fit: certify those instead of fitting


Event = tuple[str, Any]  # ("progress", share), ("done", result) or ("failed", error)


def teach(lesson: Lesson, wanted: Wanted) -> Iterator[Event]:
    """Learn, and tell how far it is; the last event is the result, or why there is none."""
    os.nice(max(0, FIT_NICENESS - os.nice(0)))
    events: queue.SimpleQueue[Event] = queue.SimpleQueue()

    def work() -> None:
        try:
            events.put(("done", _learn(lesson, wanted, lambda share: events.put(("progress", share)))))
        except PrecedentError as error:
            events.put(("failed", error))
        except Exception as error:  # the thread would end unseen
            events.put(("failed", RuntimeError(f"{type(error).__name__}: {error}")))

    threading.Thread(target=work, daemon=True).start()
    while True:
        event = events.get()
        yield event
        if event[0] != "progress":
            return


async def teach_remotely(lesson: Lesson, wanted: Wanted) -> AsyncIterator[Event]:
    """Do what `teach` does, in a Ray task.

    Raises:
        RayError: the process that did it died.
    """
    # No CPU is reserved: on a small machine the task would never start. Its niceness keeps it out of the way.
    remote: Any = ray.remote(num_cpus=0, max_retries=0, num_returns="streaming")(teach)
    async for event in remote.remote(lesson, wanted):
        yield await event


def _learn(lesson: Lesson, wanted: Wanted, progress: Any) -> Any:  # noqa: ANN401
    # A Router imports this file, and none of what it takes to fit.
    from core.tables.static_vectors import load_static  # noqa: PLC0415
    from core.tables.students import EncoderStudent, StaticStudent, Student  # noqa: PLC0415
    from core.tables.table import Table  # noqa: PLC0415
    from core.tasks.training import recertify, train  # noqa: PLC0415

    encoder = None
    if wanted.recertify is not None:
        table = Table.of(wanted.recertify[0])
        encoder = _encoder(wanted) if table.kind != "static" else None
        return recertify(lesson, table, wanted.recertify[1], None if encoder is None else encoder[0])
    students: dict[str, Student] = {}
    if wanted.kind in ("static", "auto"):
        students["static"] = StaticStudent(load_static(wanted.static_model, Path(wanted.models_dir)))
    if wanted.kind in ("encoder", "auto"):
        encoder = _encoder(wanted)
        students["encoder"] = EncoderStudent(*encoder)
    return train(lesson, students, None if encoder is None else encoder[0], progress)


def _encoder(wanted: Wanted) -> tuple[Any, str, bytes]:
    import numpy as np  # noqa: PLC0415

    from core.engines.artefact import TOKENIZER_FILE, encoder_digest_of, read_manifest  # noqa: PLC0415
    from core.engines.embedded import Encoder  # noqa: PLC0415

    folder = Path(wanted.encoder_dir)
    encode = Encoder(folder, 1).encode

    def encode_all(texts: Any) -> Any:  # noqa: ANN401
        return np.stack([encode(text).vector for text in texts])

    return encode_all, encoder_digest_of(read_manifest(folder)), (folder / TOKENIZER_FILE).read_bytes()
