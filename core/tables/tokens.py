"""Texts as token ids, where a word that was met before is not tokenized again."""

import json
from collections.abc import Callable, Iterable
from hashlib import blake2b
from typing import Any, Final

import numpy as np
import numpy.typing as npt
from tokenizers import Tokenizer

from core.tables.features import Features, featurize

MAX_TOKENS: Final = 256  # longer texts keep both ends
CHARS_PER_TOKEN: Final = 16  # a token of plain text is shorter; what lies far inside a long text is not read
MAX_KEPT: Final = 100_000  # words
LONGEST_KEPT: Final = 64  # characters; a longer one is no word, and does not come again

_LONG: Final = 2 * MAX_TOKENS * CHARS_PER_TOKEN
_MODELS: Final = ("WordPiece", "WordLevel", "Unigram")  # none of them looks beyond its word, or throws dice

Ids = npt.NDArray[np.int32]  # (n,)


class Tokens:
    """A tokenizer with the memory of the words it has seen.

    A tokenizer for which blanks only separate, as BERT's, gives a text the tokens of its words one after the
    other. By any other, the whole text is tokenized each time.

    Attributes:
        digest: of the tokenizer, hex.
        size: every id is below it.
        unknown_id: the id of what the tokenizer does not know; -1 when it has none.

    Args:
        tokenizer_json: the tokenizer, as the library `tokenizers` writes it.
    """

    def __init__(self, tokenizer_json: bytes) -> None:
        self._tokenizer = Tokenizer.from_buffer(tokenizer_json)
        self._tokenizer.no_padding()
        self._tokenizer.no_truncation()
        about = json.loads(tokenizer_json)
        self.digest = blake2b(tokenizer_json, digest_size=16).hexdigest()
        self.size = max(self._tokenizer.get_vocab(with_added_tokens=True).values()) + 1
        self.unknown_id = _unknown(about["model"], self._tokenizer)
        self._kept = _Kept(self._tokenized) if _is_word_by_word(about) else None

    def ids(self, text: str) -> Ids:
        """Token ids without special tokens, shape (n,), read-only; n <= MAX_TOKENS.

        Of a text with more tokens, half of them from either end; of one with very many characters, only the
        ends are tokenized at all. Equal texts have equal ids, whatever was tokenized before.
        """
        if len(text) > _LONG:
            text = _ends(text)
        if self._kept is None:
            known = self._tokenized(text)
        else:
            if not text.isprintable():
                # Tokenizers disagree with `str.split` about what else is blank.
                text = text.replace("\n", " ").replace("\r", " ").replace("\t", " ")
            known = b"".join(map(self._kept.__getitem__, text.split(" ")))
        ids = np.frombuffer(known, np.int32)
        if len(ids) > MAX_TOKENS:
            ids = np.concatenate((ids[: MAX_TOKENS // 2], ids[-(MAX_TOKENS // 2) :]))
            ids.flags.writeable = False
        return ids

    def features(self, texts: Iterable[str]) -> list[Features]:
        """What a student sees of each text; see `featurize`."""
        return [featurize(self.ids(text), self.size) for text in texts]

    def _tokenized(self, text: str) -> bytes:
        return np.array(self._tokenizer.encode(text, add_special_tokens=False).ids, np.int32).tobytes()


class _Kept(dict[str, bytes]):
    """Words with their ids as bytes, which are joined ten times faster than arrays."""

    def __init__(self, tokenized: Callable[[str], bytes]) -> None:
        super().__init__({"": b""})
        self._tokenized = tokenized

    def __missing__(self, word: str) -> bytes:
        ids = self._tokenized(word)
        if len(word) <= LONGEST_KEPT:
            if len(self) >= MAX_KEPT:
                self.clear()
            self[word] = ids
        return ids


def _ends(text: str) -> str:
    text = " ".join(text.split())  # blanks are no tokens, and must not stand for an end
    return text if len(text) <= _LONG else f"{text[: _LONG // 2]} {text[-_LONG // 2 :]}"


def _unknown(model: dict[str, Any], tokenizer: Tokenizer) -> int:
    if "unk_id" in model:
        return -1 if model["unk_id"] is None else int(model["unk_id"])
    unknown = tokenizer.token_to_id(model.get("unk_token") or "")
    return -1 if unknown is None else int(unknown)


def _is_word_by_word(about: dict[str, Any]) -> bool:
    normalizer, pre_tokenizer, model = (
        (about.get(part) or {}).get("type") for part in ("normalizer", "pre_tokenizer", "model")
    )
    # A token beside the vocabulary is searched in the text as it stands: with a blank it would span words.
    added = [token["content"] for token in about.get("added_tokens") or ()]
    whole = all(content.isascii() and content.isprintable() and " " not in content for content in added)
    return (
        whole and normalizer == "BertNormalizer" and pre_tokenizer == "BertPreTokenizer" and model in _MODELS
    )
