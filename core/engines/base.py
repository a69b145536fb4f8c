"""What the rest of the project asks of a model."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from core.contract.questions import Question


@dataclass(frozen=True, slots=True)
class Item:
    """One question about one state: the unit an engine answers, independently of every other item."""

    state: str  # the text to judge; structured states arrive as compact JSON
    question: Question
    isolation: str = ""  # items of other values share no cached work, so that none can time another's


@dataclass(frozen=True, slots=True)
class Reading:
    """What an engine says about one item.

    `probabilities` has one value per option of the question, in the question's order (noul: yes, then no),
    each in [0, 1], finite, with sum 1 within 1e-6, and is not rounded.
    """

    probabilities: tuple[float, ...]
    input_tokens: int = 0  # tokens of this item that the engine read
    truncated: bool = False  # True when part of a text was left out to respect the token limit
    label_mass: float | None = None  # share of the model's next-token probability that fell on options at all
    revision: str | None = None  # of the model behind a name that may move, as the model's server reported it
    reads: int = 1  # how many times the model was asked for this


@dataclass(frozen=True, slots=True)
class Limits:
    """What one item may hold before the engine leaves part of it out, or refuses it."""

    max_tokens: int  # longer texts keep both ends
    max_options: int = 255
    max_levels: int = 10


class Engine(Protocol):
    """A model behind one interface.

    `answer` takes any number of items and returns as many readings, in order. It never blocks the event
    loop. It raises `EngineFailed` or `EngineUnavailable`; an item that cannot be answered is returned as
    the exception instance in its place, so that one bad item does not fail the others.
    """

    name: str  # shown as `model` in responses
    fingerprint: str  # digest of everything that can move an answer
    limits: Limits
    batch_invariant: bool  # True when an answer does not depend on the items beside it

    async def answer(self, items: Sequence[Item]) -> list[Reading | Exception]:
        """Answer each item, in order."""
        ...

    async def check_health(self) -> None:
        """Raise when no item will ever be answered again."""
        ...

    async def close(self) -> None:
        """Finish what was taken and free threads and memory."""
        ...


class BatchModel(Protocol):
    """A blocking model, made an `Engine` by `core.engines.batcher.Batched`."""

    name: str
    fingerprint: str
    limits: Limits
    batch_invariant: bool

    def cost(self, item: Item) -> int:
        """Tokens that `item` adds to a batch; cheap, safe to call on the event loop."""
        ...

    def read(self, items: Sequence[Item]) -> list[Reading | Exception]:
        """Answer a batch, in order. Runs in a worker thread, one call at a time, and may block."""
        ...
