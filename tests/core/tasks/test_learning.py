"""A lesson learned with the models of this host."""

import numpy as np
import pytest

from core.contract.questions import QuestionReader
from core.errors import InvalidRequest, SettingsError
from core.tables.static_vectors import load_static
from core.tasks import learning
from core.tasks.learning import SentenceVectors, learn
from core.tasks.lesson import Lesson, Wanted
from core.tasks.record import CertifySettings
from core.tasks.registration import Examples
from jobs.models import MODELS_DIR, prepare, prepare_vectors
from tests.toy_language import TOPICS, examples

RAW = {"type": "choice", "criteria": {topic[0]: None for topic in TOPICS}}


def lesson(n=240):
    texts, labels = examples((n // 3,) * 3)
    question = QuestionReader().read("topic", RAW)
    assert question is not None
    given = Examples(tuple(texts), tuple(labels.tolist()))
    return Lesson("mail", RAW, question, given, CertifySettings())


@pytest.fixture(scope="module")
def folder():
    prepare_vectors(MODELS_DIR)
    return prepare(MODELS_DIR)


def wanted(folder, kind="static", static_model="english"):
    return Wanted(kind, static_model, str(MODELS_DIR), str(folder))


def test_progress_rises_from_nothing_to_all_over_vectors_and_students(folder):
    told: list[float] = []

    made = learn(lesson(), wanted(folder, "auto"), told.append)

    assert isinstance(made, list)
    assert [one.kind for one in made] == ["static", "encoder"]
    assert told == sorted(told)
    assert 0.0 <= told[0] < 0.2
    assert told[-1] <= 1.0


def test_what_is_learned_is_the_same_each_time(folder):
    first, again = (learn(lesson(), wanted(folder), lambda share: None) for _ in range(2))

    assert first == again


def test_a_static_model_that_is_not_there_is_the_callers_mistake(folder):
    with pytest.raises(InvalidRequest) as caught:
        learn(lesson(), wanted(folder, static_model="/no/such/model"), lambda share: None)

    assert caught.value.problems[0].loc == ("body", "fast_table", "static_model")


def test_our_own_static_vectors_that_are_not_there_are_the_operators(tmp_path, folder):
    with pytest.raises(SettingsError):
        learn(lesson(), Wanted("static", "english", str(tmp_path), str(folder)), lambda share: None)


def test_the_encoder_is_a_teacher_for_its_own_language_only(folder, monkeypatch):
    ours = load_static("english", MODELS_DIR)
    monkeypatch.setattr(learning, "load_static", lambda name, models_dir: ours)
    asked: list[int] = []
    encode = SentenceVectors.encode

    def counted(self, texts):
        asked.append(len(texts))
        return encode(self, texts)

    monkeypatch.setattr(SentenceVectors, "encode", counted)

    learn(lesson(), wanted(folder, static_model="multilingual"), lambda share: None)
    assert asked == []
    learn(lesson(), wanted(folder), lambda share: None)
    assert asked


def test_a_text_is_encoded_once(folder, monkeypatch):
    told: list[float] = []
    vectors = SentenceVectors(folder, 2, told.append)

    first = vectors.encode(["one", "two", "one"])
    again = vectors.encode(["two"])

    assert told == [0.5, 1.0]
    np.testing.assert_array_equal(first[0], first[2])
    np.testing.assert_array_equal(first[1], again[0])
