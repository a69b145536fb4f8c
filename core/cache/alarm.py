"""Warn about what keeps happening without repeating it for every request."""

import logging
from collections.abc import Callable

Warn = Callable[[str], None]

_logger = logging.getLogger("precedent.cache")


class Alarm:
    """One warning per kind of trouble and interval; the others are counted and told with the next.

    Args:
        warn: takes a finished sentence; by default it is logged.
        every_s: the interval, in seconds.
    """

    def __init__(self, warn: Warn = _logger.warning, every_s: float = 10.0) -> None:
        self._warn = warn
        self._every_s = every_s
        self._last: dict[str, tuple[float, int]] = {}  # kind -> when it was told, how often it came since

    def ring(self, kind: str, message: str, now: float) -> None:
        """Tell `message`, unless trouble of this kind was told less than an interval ago."""
        told_at, kept_quiet = self._last.get(kind, (None, 0))
        if told_at is not None and told_at <= now < told_at + self._every_s:
            self._last[kind] = (told_at, kept_quiet + 1)
            return
        self._last[kind] = (now, 0)
        more = f" ({kept_quiet} more like it since the last warning)" if kept_quiet else ""
        self._warn(message + more)
