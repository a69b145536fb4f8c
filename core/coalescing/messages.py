"""What Routers and a shard say to one another. Named tuples, since these cross processes by the thousand.

A *ticket* is a Router's number for one claim; it is never used twice in one session. A *token* is the shard's
number for one run; tokens only grow, and one that is no longer current is refused.
"""

from collections.abc import Sequence
from typing import NamedTuple, Protocol


class Claim(NamedTuple):
    """Ask to compute `key`, or to hear what whoever computes it found."""

    ticket: int
    key: bytes


class Settle(NamedTuple):
    """The run is over and this is everybody's answer; None when it is too long to travel."""

    key: bytes
    token: int
    value: bytes | None


class Release(NamedTuple):
    """The run is over and brought nothing: let somebody else try."""

    key: bytes
    token: int


class Leave(NamedTuple):
    """Nobody waits behind this ticket any more."""

    ticket: int


Operation = Claim | Settle | Release | Leave


class Run(NamedTuple):
    """The key is yours to compute."""

    token: int


class Wait(NamedTuple):
    """Somebody computes it; listen."""


class Shed(NamedTuple):
    """Too many wait for this key already."""

    retry_after_s: float


Verdict = Run | Wait | Shed | bool
"""The answer to one operation: to a claim, or whether the token of a settle or release was current."""


class Settled(NamedTuple):
    """A wait is over: this is the answer, or None when it is to be looked up in the store."""

    ticket: int
    value: bytes | None


class Handed(NamedTuple):
    """A wait is over: whoever computed the key failed or vanished, and it is yours now."""

    ticket: int
    token: int


Event = Settled | Handed


class Batch(NamedTuple):
    """Everything that one Router has to say to one shard at this moment."""

    session: str
    opening: bool  # nobody waits under this session, so it may begin anew if the shard forgot it
    operations: tuple[Operation, ...]


class Shard(Protocol):
    """One shard as a Router reaches it. Any exception means that it was not reached."""

    async def exchange(self, batch: Batch) -> Sequence[Verdict] | None:
        """Apply a batch in order; one verdict for each operation, or None when the session is not known."""
        ...

    async def listen(self, session: str) -> Sequence[Event] | None:
        """Wait a little for something to happen to this session's waits; None when it is not known."""
        ...
