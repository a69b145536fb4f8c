"""Whether a table is worth having on this host: what it takes and saves, measured here."""

import asyncio
import statistics
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import asdict, dataclass
from typing import Any, Final

CONCURRENCY: Final = 8
ENGINE_SAMPLES: Final = 24
TABLE_SAMPLES: Final = 200

Ask = Callable[[str], Awaitable[object]]


@dataclass(frozen=True, slots=True)
class Timing:
    """Mean and median seconds of one answer, alone and beside seven others."""

    mean_s: float
    p50_s: float
    mean_at_8_s: float
    p50_at_8_s: float


@dataclass(frozen=True, slots=True)
class Worth:
    """What a table saves of the mean time of a request: 1 is all of it, negative a loss."""

    saving: float
    saving_at_8: float

    @property
    def least(self) -> float:
        """The smaller of the two."""
        return min(self.saving, self.saving_at_8)


async def measure(ask: Ask, texts: Sequence[str], samples: int, timer: Callable[[], float]) -> Timing:
    """Time answers, each to another text as far as there are enough.

    Args:
        ask: answers one text.
        texts: at least one.
        samples: how many answers to time, alone and again side by side.
        timer: seconds, monotonic.
    """

    async def timed(text: str) -> float:
        started = timer()
        await ask(text)
        return timer() - started

    chosen = [texts[index % len(texts)] for index in range(samples)]
    await timed(chosen[0])  # the first pays for what is loaded once
    alone = [await timed(text) for text in chosen]
    together: list[float] = []
    waiting = iter(chosen)

    async def caller() -> None:
        for text in waiting:  # shared: each takes the next that nobody took
            together.append(await timed(text))  # noqa: PERF401  a comprehension would extend only at the end

    await asyncio.gather(*(caller() for _ in range(CONCURRENCY)))
    return Timing(
        statistics.fmean(alone),
        statistics.median(alone),
        statistics.fmean(together),
        statistics.median(together),
    )


def worth(table: Timing, engine: Timing, covered: float) -> Worth:
    """What a table saves that answers the share `covered` and costs its time on every request.

    The mean with the table is its own time plus the engine's for the share passed on.
    """
    return Worth(
        covered - table.mean_s / engine.mean_s if engine.mean_s else 0.0,
        covered - table.mean_at_8_s / engine.mean_at_8_s if engine.mean_at_8_s else 0.0,
    )


@dataclass(frozen=True, slots=True)
class Tried:
    """A certified table with what was measured of it."""

    kind: str
    covered: float  # certified share, 0 to 1
    certified: bool
    why_not: str | None  # why nothing is certified
    timing: Timing | None  # None where it was not worth timing


def choose(
    tried: Sequence[Tried], engine: Timing | None, min_saving: float
) -> tuple[str | None, dict[str, Any]]:
    """The kind to keep, or None, and the `fast_table_report` that says why.

    Args:
        tried: each student's table.
        engine: None where nothing was certified, so that nothing was timed.
        min_saving: the smallest saving worth a table, in [0, 1).
    """
    kinds: dict[str, Any] = {}
    best: tuple[float, str] | None = None
    for one in tried:
        kinds[one.kind] = {"certified_share": one.covered, "certified": one.certified}
        if one.why_not is not None:
            kinds[one.kind]["reason"] = one.why_not
        if one.timing is None or engine is None:
            continue
        value = worth(one.timing, engine, one.covered)
        kinds[one.kind] |= {"timing": asdict(one.timing), **asdict(value)}
        if best is None or value.least > best[0]:
            best = (value.least, one.kind)
    kept = best[1] if best is not None and best[0] >= min_saving else None
    guard = None if engine is None else {"engine": asdict(engine), "min_saving": min_saving}
    return kept, {
        "kept": kept is not None,
        "reason": _reason(best, kept, min_saving),
        "guard": guard,
        "kinds": kinds,
    }


def _reason(best: tuple[float, str] | None, kept: str | None, min_saving: float) -> str:
    if best is None:
        return "no table could be certified, so none was timed"
    saving, kind = best
    said = f"the {kind} table saves {saving:.1%} of the mean time of a request on this host"
    if kept is not None:
        return f"{said}, at least the {min_saving:.1%} that was asked for"
    return f"{said}, less than the {min_saving:.1%} that was asked for"
