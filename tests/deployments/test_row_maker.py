import numpy as np
import pytest

from core.contract.questions import QuestionReader
from core.engines.artefact import FOLDER
from core.errors import EngineUnavailable, SettingsError
from core.tables.tokens import Tokens
from core.tasks.record import FastTableSettings
from core.tasks.rows import Drawn, about
from core.tasks.tokenizer import row_tokenizer
from deployments.row_maker import ENCODED_AT_ONCE, Raw, RowMaker
from jobs.models import MODELS_DIR, prepare
from tests.core.tasks.tables import CHOICE, record

TEXTS = ["Where is my card?", "I was charged twice."]


@pytest.fixture(scope="module", autouse=True)
def _models():
    prepare(MODELS_DIR)


def raws(kind="static", texts=TEXTS):
    question = QuestionReader().read("team", CHOICE)
    assert question is not None
    task = record(fast_table=FastTableSettings(kind, learn=True))
    return [
        Raw(task, question, number.to_bytes(16), text, Drawn.TRAFFIC, (0.25, 0.75), 1_000.0)
        for number, text in enumerate(texts)
    ]


async def encode(texts):
    return [np.full(4, len(text), np.float32) for text in texts]


async def no_encoder(texts):
    raise EngineUnavailable("none is up")


@pytest.mark.parametrize("kind", ["static", "encoder"])
async def test_features_are_those_that_the_student_will_see_in_no_order(kind):
    made = await RowMaker(MODELS_DIR, encode, "fake-0").make(raws(kind))
    tokens = Tokens(row_tokenizer(FastTableSettings(kind), MODELS_DIR))

    for row, seen in zip(made, tokens.features(TEXTS), strict=True):
        assert row is not None
        assert row.features.tolist() == sorted(seen.tolist())
        assert (row.tokenizer, row.top, row.answer) == (tokens.digest, 1, (0.25, 0.75))
        assert row.about == about(raws(kind)[0].record, "fake-0")


async def test_a_student_that_reads_vectors_gets_them_with_the_rows():
    static = await RowMaker(MODELS_DIR, no_encoder, "fake-0").make(raws())
    made = await RowMaker(MODELS_DIR, encode, "fake-0").make(raws("encoder"))

    assert [row.vector for row in static if row is not None] == [None, None]
    vectors = [row.vector for row in made if row is not None]
    assert [vector.tolist() for vector in vectors if vector is not None] == [[17.0] * 4, [20.0] * 4]


async def test_what_no_encoder_answers_for_is_no_row_yet():
    calls = []

    async def encode_once(texts):
        calls.append(len(texts))
        if len(calls) > 1:
            raise EngineUnavailable("none is up any more")
        return await encode(texts)

    made = await RowMaker(MODELS_DIR, encode_once, "fake-0").make(raws("encoder", TEXTS * 20))

    assert [row is None for row in made] == [False] * ENCODED_AT_ONCE + [True] * (40 - ENCODED_AT_ONCE)
    assert await RowMaker(MODELS_DIR, no_encoder, "fake-0").make(raws("encoder")) == [None, None]


async def test_spellings_of_one_text_are_one_input():
    one, other, another = await RowMaker(MODELS_DIR, encode, "fake-0").make(
        raws(texts=["Where is my card?", " where  is my CARD?", "Where is my card"])
    )

    assert one is not None
    assert other is not None
    assert another is not None
    assert one.input == other.input != another.input


async def test_without_the_students_model_it_says_what_to_do(tmp_path):
    with pytest.raises(SettingsError, match=r"run `python -m jobs\.models`"):
        await RowMaker(tmp_path, encode, "fake-0").make(raws())
    with pytest.raises(SettingsError, match=rf"{FOLDER}.*run `python -m jobs\.models`"):
        await RowMaker(tmp_path, encode, "fake-0").make(raws("encoder"))
