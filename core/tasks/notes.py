"""What is known of a fit while it goes on, and of one that failed: kept beside the tasks for all to see."""

from dataclasses import asdict, dataclass
from typing import Any, Final

import orjson

PREFIX: Final = "@fit/"  # no task's id holds an @ or a /
SILENT_AFTER_S: Final = 30.0  # a fit that says nothing for so long went down with its process
KEEP_FAILURES_S: Final = 3_600.0


@dataclass(frozen=True, slots=True)
class Note:
    """How far a fit is."""

    task: str
    state: str  # "learning", "timing" or "failed"
    progress: float  # share done, 0 to 1
    at: float  # Unix seconds of this note
    error: str | None = None  # why it failed

    def is_under_way(self, now: float) -> bool:
        """Whether somebody still works on it."""
        return self.state != "failed" and now < self.at + SILENT_AFTER_S

    def is_stale(self, now: float) -> bool:
        """Whether it is of no use to anybody any more."""
        return now >= self.at + KEEP_FAILURES_S

    def encode(self) -> bytes:
        """For the task store."""
        return orjson.dumps(asdict(self))

    def public(self, now: float) -> dict[str, Any]:
        """What callers see."""
        if self.state == "failed":
            return {"state": "failed", "error": self.error}
        if not self.is_under_way(now):
            gone = "the process that fitted it went down; register it again"
            return {"state": "failed", "error": gone}
        return {"state": self.state, "progress": round(self.progress, 3)}


def decode(value: bytes) -> Note | None:
    """The note that a store returned; None for what is none."""
    try:
        return Note(**orjson.loads(value))
    except (orjson.JSONDecodeError, TypeError):
        return None
