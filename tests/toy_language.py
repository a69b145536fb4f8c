"""A language of thirty words: a tokenizer, vectors for its tokens, and labelled texts to learn from."""

import json

import numpy as np
from tokenizers import Tokenizer
from tokenizers.models import WordPiece
from tokenizers.normalizers import BertNormalizer
from tokenizers.pre_tokenizers import BertPreTokenizer

from core.tables.static_vectors import StaticVectors

TOPICS = (
    ("card", "lost", "stolen", "plastic", "block", "wallet"),
    ("refund", "money", "back", "return", "paid", "twice"),
    ("address", "moved", "house", "street", "city", "new"),
)
FILLERS = ("my", "the", "please", "is", "i", "want", "a", "to")
SPECIAL = ("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]")
WORDS = (*FILLERS, *(word for topic in TOPICS for word in topic))
DIM = 8


def tokenizer_json() -> bytes:
    """A BERT tokenizer that knows `WORDS` and nothing else."""
    vocabulary = {word: number for number, word in enumerate((*SPECIAL, *WORDS))}
    tokenizer = Tokenizer(WordPiece(vocabulary, unk_token="[UNK]"))
    tokenizer.normalizer = BertNormalizer()
    tokenizer.pre_tokenizer = BertPreTokenizer()
    return json.dumps(json.loads(tokenizer.to_str())).encode()


def static_vectors() -> StaticVectors:
    """Vectors in which the words of a topic are near to each other."""
    rng = np.random.default_rng(0)
    vectors = rng.normal(0.0, 0.2, (len(SPECIAL) + len(WORDS), DIM)).astype(np.float32)
    for number, topic in enumerate(TOPICS):
        for word in topic:
            vectors[len(SPECIAL) + WORDS.index(word), number] += 1.0
    vectors[: len(SPECIAL)] = 0.0
    return StaticVectors(tokenizer_json(), vectors, "toy")


def texts_about(topic: int, n: int, seed: int = 0) -> list[str]:
    """Distinct sentences with three words of a topic among fillers."""
    rng = np.random.default_rng((seed, topic))
    found: dict[str, None] = {}
    while len(found) < n:
        words = [*rng.choice(TOPICS[topic], 3, replace=False), *rng.choice(FILLERS, 3)]
        found[" ".join(rng.permutation(words).tolist())] = None
    return list(found)


def examples(per_topic: tuple[int, ...], seed: int = 0) -> tuple[list[str], np.ndarray]:
    """So many texts of each topic, with the topic's number as label."""
    texts = [text for topic, n in enumerate(per_topic) for text in texts_about(topic, n, seed)]
    return texts, np.repeat(np.arange(len(per_topic)), per_topic).astype(np.int64)
