"""A Router's claims, one by one, and a count of how they ended."""

import asyncio
from dataclasses import dataclass
from enum import Enum, auto


class Phase(Enum):
    """What a seat is."""

    ASKING = auto()  # the claim is on its way
    WAITING = auto()  # another Router computes
    RUNNING = auto()  # this one computes, and the others wait for it
    ANSWERED = auto()  # another Router computed
    SHED = auto()  # too many wait
    ALONE = auto()  # this one computes, and nobody knows
    GONE = auto()  # settled, released or left


class Seat:
    """One claim of this Router, from its beginning to its end."""

    __slots__ = ("answer", "changed", "key", "phase", "retry_after_s", "taken_over", "ticket", "token")

    def __init__(self, key: bytes, ticket: int) -> None:
        self.key = key
        self.ticket = ticket
        self.phase = Phase.ASKING
        self.token = 0
        self.answer: bytes | None = None
        self.retry_after_s = 0.0
        self.taken_over = False  # whether another computed before and failed
        self.changed: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    @property
    def pending(self) -> bool:
        """Whether there is no outcome yet."""
        return self.phase in {Phase.ASKING, Phase.WAITING}

    def become(self, phase: Phase) -> None:
        """Change, and wake whoever waits for an outcome unless there is none yet."""
        self.phase = phase
        if phase is not Phase.WAITING and not self.changed.done():
            self.changed.set_result(None)


@dataclass(slots=True)
class Tally:
    """What happened on all lines of a Router. Each turn asked for ends as one of the last six."""

    claims: int = 0  # turns asked for
    waits: int = 0  # told to wait for another Router
    lapses: int = 0  # ended a run whose lease had lapsed
    runs: int = 0  # granted at once
    takeovers: int = 0  # waited, and then had to compute: the other failed or vanished
    coalesced: int = 0  # ended with another Router's answer
    uncoordinated: int = 0  # computed without anybody knowing
    sheds: int = 0  # refused, since too many wait for that key
    left: int = 0  # given up by the caller before there was an outcome
