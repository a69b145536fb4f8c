"""The unit that is stored and replayed."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Self

import orjson

from core.contract.answers import margins as margins_of


@dataclass(frozen=True)  # no slots: `replay_head` is kept beside the fields
class Decision:
    """The answers of one request, in the form in which they were first sent.

    `answers` is the JSON object of the response, byte for byte, so that a replay repeats the first response.
    """

    key: bytes  # 16 bytes
    model: str  # the response's `model`
    answers: bytes  # compact JSON object: question id -> answer
    margins: dict[str, float]  # question id -> margin in [0, 1], from the unrounded distribution
    input_tokens: int = 0
    output_tokens: int = 0
    truncated: tuple[str, ...] = ()  # ids of the questions for which text was left out
    tasks: tuple[str, ...] = ()  # ids of the registered tasks that took part
    table_versions: tuple[str, ...] = ()  # "task@version" of every table that answered a question
    answered_by: dict[str, str] = field(default_factory=dict)  # question id -> "table" or "model", tasks only
    stored_at: float = 0.0  # Unix seconds
    expires_at: float | None = None  # Unix seconds; None is never
    last_expiry: float | None = None  # no renewal may pass this instant (evidence deadline, maximum age)
    epoch: int = 0  # the purge epoch that the writer knew when its request began
    is_stored: bool = field(default=True, compare=False)  # False while only this process has it

    @classmethod
    def of(cls, fields: dict[str, Any]) -> Self:
        """Assemble a decision from a dictionary of all its fields, which becomes its own.

        A frozen dataclass sets its fields one at a time, the slow way; a lookup should not wait for that.
        """
        decision = cls.__new__(cls)
        object.__setattr__(decision, "__dict__", fields)
        return decision

    def replay(self, now: float, thresholds: Mapping[str, float] | None = None) -> bytes:
        """The response body of a replay: usage is zero, since the tokens belong to the first inference."""
        head = self._head("replay", 0, 0, thresholds) if thresholds else self.replay_head
        age_s = max(0.0, now - self.stored_at)
        return head + (b"%.3f}}" % age_s if self.is_stored else b'%.3f,"stored":false}}' % age_s)

    def first_reply(
        self, source: str, thresholds: Mapping[str, float] | None = None, *, stored: bool = True
    ) -> bytes:
        """The response body for a caller that waited for this decision.

        Args:
            source: "model" for the call whose inference it was, which alone reports its tokens; else
                "coalesced".
            thresholds: of the caller, for the margins.
            stored: False when the store does not have the decision.
        """
        input_tokens, output_tokens = self.usage(source)
        head = self._head(source, input_tokens, output_tokens, thresholds)
        return head + (b"0.0}}" if stored else b'0.0,"stored":false}}')

    def usage(self, source: str) -> tuple[int, int]:
        """Input and output tokens that an answer from `source` reports: each inference counts once."""
        return (self.input_tokens, self.output_tokens) if source == "model" else (0, 0)

    @cached_property
    def replay_head(self) -> bytes:
        """A replay's body up to its age: all that does not change between replays."""
        return self._head("replay", 0, 0, None)

    def _head(
        self, source: str, input_tokens: int, output_tokens: int, thresholds: Mapping[str, float] | None
    ) -> bytes:
        margins = self._margins(thresholds) if thresholds else self.margins
        about: dict[str, object] = {"source": source, "key": self.key.hex(), "margins": margins}
        if self.truncated:
            about["truncated"] = self.truncated
        return b'{"model":%b,"answers":%b,"usage":%b,"x_precedent":%b,"age_s":' % (
            orjson.dumps(self.model),
            self.answers,
            orjson.dumps({"input_tokens": input_tokens, "output_tokens": output_tokens}),
            orjson.dumps(about)[:-1],
        )

    def _margins(self, thresholds: Mapping[str, float]) -> dict[str, float]:
        # Only a noul has a threshold; the margins of the others stay those of the unrounded distribution.
        asked = {
            name: given
            for name, given in orjson.loads(self.answers).items()
            if name in thresholds and given["type"] == "noul"
        }
        return {**self.margins, **margins_of(asked, thresholds)}
