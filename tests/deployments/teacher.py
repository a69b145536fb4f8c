"""An engine that knows the toy language, and can be made to change its mind."""

from collections.abc import Callable

from core.engines.base import Item, Reading
from core.engines.fake import FakeEngine
from tests.toy_language import TOPICS


class ToyTeacher(FakeEngine):
    """Answers by the words of a topic that a text has.

    Attributes:
        contrary: the texts that it answers with another topic than their words say.
    """

    def __init__(self, seed: int = 0, delay_s: float = 0.002) -> None:
        super().__init__(seed, delay_s)
        self.contrary: Callable[[str], bool] = lambda text: False

    def _one(self, item: Item, salt: bytes) -> Reading:
        words = set(item.state.split())
        counts = [len(words & set(topic)) for topic in TOPICS]
        top = counts.index(max(counts))
        if self.contrary(item.state):
            top = (top + 1) % len(TOPICS)
        shares = [0.02] * len(TOPICS)
        shares[top] = 0.96
        return Reading(tuple(shares), len(words))
