"""From decisions to rows: the text goes in, and what a student sees of it comes out."""

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final

from core.consulting import EncodeTexts, Vector
from core.contract.answers import top_option
from core.contract.questions import Question
from core.contract.strict_json import encode as as_json
from core.errors import RetryLater
from core.tables.split import input_digest
from core.tasks.record import FastTableSettings, TaskRecord
from core.tasks.registration import option_names
from core.tasks.rows import Drawn, Row, about

ENCODED_AT_ONCE: Final = 16  # a batch that is done well within the deadline of an encoder

if TYPE_CHECKING:
    from core.tables.tokens import Tokens


@dataclass(frozen=True, slots=True)
class Raw:
    """A decision that a row is made of. It holds the text, so it lives until the row is made."""

    record: TaskRecord
    question: Question
    key: bytes
    state: str
    drawn: Drawn
    answer: tuple[float, ...]  # the engine's distribution
    at: float  # Unix seconds


class RowMaker:
    """Makes rows as the student of each task wants them.

    Args:
        models_dir: where the students' tokenizers are.
        encode: sentence vectors, for the tasks whose student needs them.
        fingerprint: of the engine that answers.
    """

    def __init__(self, models_dir: Path, encode: EncodeTexts, fingerprint: str) -> None:
        self._models_dir = models_dir
        self._encode = encode
        self._fingerprint = fingerprint
        self._tokens: dict[tuple[str, str], Tokens] = {}

    async def make(self, raws: Sequence[Raw]) -> list[Row | None]:
        """A row for each of some decisions about one task; None where no sentence vector is to be had now.

        Raises:
            SettingsError: the student that the task wants is not on this host.
            ArtefactMismatch: it is damaged.
        """
        if not raws:
            return []
        wanted = raws[0].record.fast_table
        assert wanted is not None  # or it would not learn
        tokens = await asyncio.to_thread(self._tokens_of, wanted)
        if wanted.kind == "static":
            return [*await asyncio.to_thread(self._made, raws, tokens, [None] * len(raws))]
        vectors = await self._vectors([raw.state for raw in raws])
        ready = sum(vector is not None for vector in vectors)  # they come in order, until there are no more
        if not ready:
            return [None] * len(raws)
        made = await asyncio.to_thread(self._made, raws[:ready], tokens, vectors[:ready])
        return [*made, *[None] * (len(raws) - ready)]

    async def _vectors(self, texts: Sequence[str]) -> list[Vector | None]:
        vectors: list[Vector | None] = []
        for at in range(0, len(texts), ENCODED_AT_ONCE):
            try:
                vectors += await self._encode(texts[at : at + ENCODED_AT_ONCE])
            except RetryLater:
                return [*vectors, *[None] * (len(texts) - len(vectors))]
        return vectors

    def _made(self, raws: Sequence[Raw], tokens: "Tokens", vectors: Sequence[Vector | None]) -> list[Row]:
        record = raws[0].record
        question, revision = as_json(dict(record.question)).decode(), about(record, self._fingerprint)
        rows = []
        for raw, vector in zip(raws, vectors, strict=True):
            (features,) = tokens.features([raw.state])
            features.sort()
            rows.append(
                Row(
                    drawn=raw.drawn,
                    features=features,
                    answer=raw.answer,
                    top=top_option(option_names(raw.question), raw.answer),
                    input=input_digest(raw.state, question),
                    about=revision,
                    tokenizer=tokens.digest,
                    at=raw.at,
                    vector=vector,
                )
            )
        return rows

    def _tokens_of(self, wanted: FastTableSettings) -> "Tokens":
        # A Router that learns nothing does not pay for a tokenizer.
        from core.tables.tokens import Tokens  # noqa: PLC0415
        from core.tasks.tokenizer import row_tokenizer  # noqa: PLC0415

        name = wanted.kind, wanted.static_model
        found = self._tokens.get(name)
        if found is None:
            found = self._tokens[name] = Tokens(row_tokenizer(wanted, self._models_dir))
        return found
