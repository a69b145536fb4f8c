import json
import sys
from hashlib import sha256

import numpy as np
import pytest

from core.errors import ArtefactMismatch, SettingsError
from core.tables import container
from core.tables.static_vectors import (
    FOLDER,
    MANIFEST_FILE,
    TOKENIZER_FILE,
    VECTORS_FILE,
    load_static,
    read_folder,
)
from tests.toy_language import DIM, SPECIAL, WORDS, tokenizer_json

SIZE = len(SPECIAL) + len(WORDS)
UNKNOWN = SPECIAL.index("[UNK]")
VECTORS = np.random.default_rng(0).normal(size=(SIZE, DIM)).astype(np.float16)


def lay(folder, arrays, tokenizer=None):
    folder.mkdir(parents=True, exist_ok=True)
    (folder / VECTORS_FILE).write_bytes(container.write(arrays, {}))
    (folder / TOKENIZER_FILE).write_bytes(tokenizer or tokenizer_json())
    return folder


@pytest.fixture
def prepared(tmp_path):
    """A models folder with vectors as `python -m jobs.models` leaves them."""
    folder = lay(tmp_path / FOLDER, {"embeddings": VECTORS})
    files = {path.name: sha256(path.read_bytes()).hexdigest() for path in folder.iterdir()}
    (folder / MANIFEST_FILE).write_text(json.dumps({"files": files}))
    return tmp_path


def test_the_prepared_vectors_are_those_of_english(prepared):
    found = load_static("english", prepared)

    expected = VECTORS.astype(np.float32)
    expected[UNKNOWN] = 0.0
    np.testing.assert_array_equal(found.vectors, expected)
    assert not found.vectors.flags.writeable
    assert found.tokenizer_json == tokenizer_json()


@pytest.mark.parametrize(
    ("subfolder", "name"),
    [(".", "embeddings"), (".", "embedding.weight"), ("0_StaticEmbedding", "embedding.weight")],
)
def test_models_are_read_as_their_libraries_write_them(tmp_path, subfolder, name):
    lay(tmp_path / subfolder, {name: VECTORS})

    assert load_static(str(tmp_path), tmp_path / "unused").vectors.shape == (SIZE, DIM)


def test_rows_that_tokens_share_and_weights_are_applied(tmp_path):
    mapping = np.arange(SIZE) % 2
    weights = np.linspace(0.0, 1.0, SIZE)
    lay(tmp_path, {"embeddings": VECTORS[:2], "mapping": mapping, "weights": weights})

    found = read_folder(tmp_path).vectors

    expected = VECTORS[mapping].astype(np.float32) * weights.astype(np.float32)[:, None]
    expected[UNKNOWN] = 0.0
    np.testing.assert_array_equal(found, expected)


def test_other_vectors_and_another_tokenizer_have_another_digest(tmp_path):
    other = VECTORS.copy()
    other[9, 0] += 1
    spaced = json.dumps(json.loads(tokenizer_json()), indent=1).encode()
    folders = [
        lay(tmp_path / "a", {"embeddings": VECTORS}),
        lay(tmp_path / "b", {"embeddings": other}),
        lay(tmp_path / "c", {"embeddings": VECTORS}, spaced),
    ]

    assert len({read_folder(folder).digest for folder in folders}) == 3


@pytest.mark.parametrize(
    ("arrays", "problem"),
    [
        ({"embeddings": VECTORS[:-1]}, "needs a finite one for each"),
        ({"embeddings": VECTORS[0]}, "needs a finite one for each"),
        ({"embeddings": np.full((SIZE, DIM), np.nan, np.float32)}, "needs a finite one for each"),
        ({"embeddings": VECTORS, "mapping": np.full(SIZE, 10**6)}, "cannot be read"),
        ({"something": VECTORS}, "give the folder of a model2vec model"),
    ],
    ids=["too few", "flat", "not finite", "a mapping outside", "another name"],
)
def test_vectors_that_do_not_fit_are_refused_with_the_folder(tmp_path, arrays, problem):
    lay(tmp_path, arrays)

    with pytest.raises(SettingsError, match=problem) as caught:
        read_folder(tmp_path)
    assert str(tmp_path) in str(caught.value)


def test_a_tokenizer_that_is_none_is_refused(tmp_path):
    lay(tmp_path, {"embeddings": VECTORS}, b"{}")

    with pytest.raises(SettingsError, match="cannot be read"):
        read_folder(tmp_path)


def test_without_prepared_vectors_the_refusal_says_how_to_prepare_them(tmp_path):
    with pytest.raises(SettingsError, match=r"python -m jobs\.models"):
        load_static("english", tmp_path)


@pytest.mark.parametrize("file", [VECTORS_FILE, TOKENIZER_FILE])
def test_a_changed_file_is_refused_with_both_digests(prepared, file):
    path = prepared / FOLDER / file
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 1
    expected = json.loads((prepared / FOLDER / MANIFEST_FILE).read_text())["files"][file]
    path.write_bytes(content)

    with pytest.raises(ArtefactMismatch) as caught:
        load_static("english", prepared)
    assert expected in str(caught.value)
    assert sha256(content).hexdigest() in str(caught.value)


@pytest.mark.parametrize("manifest", ["", "[]", "{}", '{"files": 3}'])
def test_a_manifest_that_says_nothing_is_refused(prepared, manifest):
    (prepared / FOLDER / MANIFEST_FILE).write_text(manifest)

    with pytest.raises(SettingsError, match="prepare it again"):
        load_static("english", prepared)


def test_a_hub_that_cannot_be_reached_is_refused_with_what_to_give_instead(tmp_path, monkeypatch):
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    monkeypatch.setenv("HF_HOME", str(tmp_path))

    with pytest.raises(SettingsError, match="give the folder of a model2vec model"):
        load_static("nobody/nothing", tmp_path)


def test_without_the_hubs_library_the_refusal_says_so(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "huggingface_hub", None)

    with pytest.raises(SettingsError, match="huggingface_hub"):
        load_static("multilingual", tmp_path)
