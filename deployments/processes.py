"""Leave no process behind. Linux tells who descends from whom; elsewhere Ray's own clean-up has to do."""

import ctypes
import os
import signal
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

_PR_SET_PDEATHSIG = 1  # linux/prctl.h
_PR_SET_CHILD_SUBREAPER = 36
_PARENT_FIELD = 1  # of /proc/<pid>/stat, counted after the name: state, parent, ...


def adopt_orphans() -> None:
    """Become the parent of every descendant whose own parent dies, so that none can hide."""
    _prctl(_PR_SET_CHILD_SUBREAPER, 1)


def end_with_parent() -> None:
    """Have this process asked to end when its parent dies, however it dies."""
    _prctl(_PR_SET_PDEATHSIG, signal.SIGTERM)


def descendants(of: int) -> list[int]:
    """Process ids below `of`, parents before children."""
    children: dict[int, list[int]] = {}
    for entry in Path("/proc").glob("[0-9]*/stat"):
        with suppress(OSError):  # it ended while we looked
            # The name is in parentheses and may hold spaces and parentheses itself.
            facts = entry.read_text().rpartition(")")[2].split()
            children.setdefault(int(facts[_PARENT_FIELD]), []).append(int(entry.parent.name))
    found = list(children.get(of, ()))
    for pid in found:  # grows while it is read: breadth first
        found.extend(children.get(pid, ()))
    return found


def named(name: str, of: int) -> list[int]:
    """Process ids below `of` whose program is called `name`."""
    found = []
    for pid in descendants(of):
        with suppress(OSError):  # it ended while we looked
            program = Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")[0]
            if program.decode(errors="replace").rpartition("/")[2] == name:
                found.append(pid)
    return found


def wait_until_steady(
    look: Callable[[], object],
    steady_s: float,
    within_s: float,
    sleep: Callable[[float], None] = time.sleep,
    timer: Callable[[], float] = time.monotonic,
) -> None:
    """Wait until `look` has returned the same for `steady_s` seconds, or `within_s` seconds have passed."""
    known, since = look(), timer()
    until = since + within_s
    while timer() < min(since + steady_s, until):
        sleep(0.05)
        now = look()
        if now != known:
            known, since = now, timer()


def end_descendants(grace_s: float, sleep: Callable[[float], None] = time.sleep) -> int:
    """Ask every descendant of this process to end, and kill those that have not after `grace_s` seconds.

    Returns:
        How many had to be killed.
    """
    _send(signal.SIGTERM)
    waited_s = 0.0
    while waited_s < grace_s and _alive():
        sleep(0.1)
        waited_s += 0.1
    left = len(_alive())
    while _alive():
        _send(signal.SIGKILL)
        sleep(0.05)
    return left


def _prctl(option: int, value: int) -> None:
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(option, value, 0, 0, 0)


def _alive() -> list[int]:
    _reap()
    return descendants(os.getpid())


def _send(sign: signal.Signals) -> None:
    for pid in _alive():
        with suppress(ProcessLookupError):
            os.kill(pid, sign)


def _reap() -> None:
    with suppress(ChildProcessError):
        while os.waitpid(-1, os.WNOHANG)[0]:
            pass
