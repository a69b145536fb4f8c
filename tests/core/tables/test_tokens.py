import json

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from tokenizers import Tokenizer
from tokenizers.models import Unigram, WordPiece
from tokenizers.normalizers import BertNormalizer
from tokenizers.pre_tokenizers import BertPreTokenizer, Metaspace

from core.tables import tokens
from core.tables.tokens import MAX_TOKENS, Tokens
from tests.toy_language import WORDS, tokenizer_json

PIECES = ("[UNK]", "un", "##able", "##s", "able", "é", "e", "中", "文", "!", "'", "0", "a", "##a", *WORDS)


def bert() -> Tokenizer:
    tokenizer = Tokenizer(
        WordPiece({piece: number for number, piece in enumerate(PIECES)}, unk_token="[UNK]")
    )
    tokenizer.normalizer = BertNormalizer()
    tokenizer.pre_tokenizer = BertPreTokenizer()
    return tokenizer


def written(tokenizer: Tokenizer) -> bytes:
    return json.dumps(json.loads(tokenizer.to_str())).encode()


BERT = bert()
KEPT = Tokens(written(BERT))

texts = st.text(
    st.one_of(
        st.sampled_from(
            [*"unableas é中文!'0 \t\n\r\x0b\x0c\x1c\x1d\x1e\x1f\x85\xa0\u2028\u3000\u200b\u0301\x00\ufffd"]
        ),
        st.characters(codec="utf-8"),
    ),
    max_size=60,
)


@given(texts)
@example("unables\r\nunable\tcard\x00card")
@example("e\u0301 \u0301e  card\u00a0lost\u3000refund\u2028money")
@example("")
def test_a_text_has_the_tokens_that_the_library_gives_the_whole_of_it(text):
    assert KEPT.ids(text).tolist() == BERT.encode(text, add_special_tokens=False).ids


@given(st.lists(texts, max_size=5), texts)
def test_what_was_tokenized_before_changes_nothing(before, text):
    warm = Tokens(written(BERT))
    for each in before:
        warm.ids(each)

    assert warm.ids(text).tolist() == Tokens(written(BERT)).ids(text).tolist()


def test_a_word_that_was_met_before_is_not_tokenized_again(monkeypatch):
    some = Tokens(tokenizer_json())
    some.ids("lost card")
    monkeypatch.setattr(some._kept, "_tokenized", lambda word: pytest.fail(f"{word} was tokenized again"))

    assert len(some.ids("card lost  card")) == 3


def test_a_full_memory_of_words_forgets_and_answers_the_same(monkeypatch):
    monkeypatch.setattr(tokens, "MAX_KEPT", 3)
    small, large = Tokens(tokenizer_json()), Tokens(tokenizer_json())
    text = " ".join(WORDS)

    assert small.ids(text).tolist() == large.ids(text).tolist()
    assert small._kept is not None
    assert len(small._kept) <= 3


def test_a_word_of_great_length_is_not_kept():
    some = Tokens(tokenizer_json())
    some.ids("x" * 1_000)

    assert some._kept is not None
    assert len(some._kept) == 1


def test_a_long_text_keeps_both_ends():
    start, end = "card " * MAX_TOKENS, "refund " * MAX_TOKENS
    some = Tokens(tokenizer_json())

    ids = some.ids(start + end)

    half = MAX_TOKENS // 2
    assert ids.tolist() == some.ids("card").tolist() * half + some.ids("refund").tolist() * half


def test_of_a_text_of_a_million_words_the_middle_is_not_read():
    some = Tokens(tokenizer_json())

    ids = some.ids("card " * 500_000 + "refund " * 500_000)

    assert ids.tolist() == some.ids("card " * 10_000 + "refund " * 10_000).tolist()


def test_blanks_do_not_count_as_an_end():
    some = Tokens(tokenizer_json())

    assert some.ids(" " * 1_000_000 + "card" + " " * 1_000_000).tolist() == some.ids("card").tolist()


def test_ids_cannot_be_changed():
    some = Tokens(tokenizer_json())
    for text in ("card", "card " * 1_000):
        with pytest.raises(ValueError, match="read-only"):
            some.ids(text)[0] = 1


def test_a_tokenizer_for_which_blanks_are_more_than_separators_reads_the_whole_text():
    unigram = Tokenizer(Unigram([("<unk>", 0.0), ("▁a", -1.0), ("a", -2.0), ("▁", -3.0)], 0, False))
    unigram.pre_tokenizer = Metaspace()
    some = Tokens(written(unigram))

    for text in ("a a", "a  a", " a", "aa"):
        assert some.ids(text).tolist() == unigram.encode(text, add_special_tokens=False).ids
    assert some.unknown_id == 0


def test_a_token_with_a_blank_in_it_is_found_in_the_whole_text():
    tokenizer = bert()
    tokenizer.add_tokens(["lost card"])

    assert Tokens(written(tokenizer)).ids("my lost card").tolist() == (
        tokenizer.encode("my lost card", add_special_tokens=False).ids
    )


def test_truncation_and_padding_that_a_tokenizer_file_asks_for_are_not_applied():
    tokenizer = bert()
    tokenizer.enable_truncation(2)
    tokenizer.enable_padding(length=8)

    assert (
        Tokens(written(tokenizer)).ids("card lost refund").tolist() == KEPT.ids("card lost refund").tolist()
    )


def test_what_is_said_of_a_tokenizer_is_so():
    some = Tokens(written(BERT))

    assert (some.size, some.unknown_id) == (len(PIECES), 0)
    assert some.ids("qqq").tolist() == [0]
    assert some.ids("card").dtype == np.int32
    assert some.digest != Tokens(tokenizer_json()).digest
