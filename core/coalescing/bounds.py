"""How long, how many and how much: the bounds on which a shard and its Routers agree."""

import math
from dataclasses import dataclass, fields

from core.errors import SettingsError


@dataclass(frozen=True, slots=True)
class Bounds:
    """Every bound of coalescing. Both sides must be built with the same ones.

    Raises:
        SettingsError: a bound that is not a positive number.
    """

    lease_s: float = 3.0  # a Router not heard for this long has lost its runs and its waits
    max_run_s: float = 15.0  # a run that takes longer is passed on, although its Router is alive
    max_wait_s: float = 6.0  # a caller that waited this long computes for itself
    max_waiters: int = 1_000  # per key, on one shard
    retry_after_s: float = 1.0  # what a caller beyond `max_waiters` is told
    max_value_bytes: int = 1024 * 1024  # a longer answer does not travel: its waiters find it in the store

    def __post_init__(self) -> None:
        for bound in fields(self):
            value = getattr(self, bound.name)
            if not (math.isfinite(value) and value > 0):
                raise SettingsError(f"coalescer.{bound.name}", f"is {value} and must be a positive number")

    @property
    def listen_s(self) -> float:
        """How long one `listen` lasts when nothing happens. It renews the leases, well before they lapse."""
        return self.lease_s / 4

    @property
    def call_s(self) -> float:
        """How long a shard may take over one call. With `listen_s` it is less than a lease, on purpose.

        A shard that stalls for longer than a lease has then lost every Router's session already, and cannot
        come back to find that all leases lapsed while their Routers still count on them.
        """
        return self.lease_s / 2
