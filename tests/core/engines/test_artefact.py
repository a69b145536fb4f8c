"""A prepared model is what its manifest says, or it is not loaded."""

import json
import shutil
from dataclasses import fields, replace

import pytest

from core.engines.artefact import (
    FILES,
    MANIFEST_FILE,
    MODEL_FILE,
    RECIPE,
    SOURCE_SHA256,
    TOKENIZER_FILE,
    Manifest,
    digest_of,
    fingerprint_of,
    read_manifest,
)
from core.engines.embedded import EmbeddedModel
from core.engines.profile import Profile, read_profile
from core.errors import ArtefactMismatch, SettingsError

COMMAND = "python -m jobs.models"


@pytest.fixture
def copy(artefact, tmp_path):
    """A copy of the artefact that a test may spoil."""
    return shutil.copytree(artefact, tmp_path / "copy")


def rewrite(folder, **changes):
    """Change what a manifest says."""
    about = json.loads((folder / MANIFEST_FILE).read_bytes()) | changes
    (folder / MANIFEST_FILE).write_text(json.dumps(about))


@pytest.mark.parametrize("name", FILES)
def test_a_file_of_which_one_byte_changed_is_not_loaded_and_the_message_names_both_digests(copy, name):
    path = copy / name
    expected = digest_of(path)
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 1
    path.write_bytes(content)

    with pytest.raises(ArtefactMismatch) as caught:
        EmbeddedModel.load(copy)

    assert all(part in str(caught.value) for part in (str(path), expected, digest_of(path), COMMAND))


def test_a_file_that_is_gone_is_missed(copy):
    (copy / TOKENIZER_FILE).unlink()

    with pytest.raises(ArtefactMismatch, match="absent"):
        EmbeddedModel.load(copy)


def test_a_file_that_the_manifest_does_not_name_is_not_loaded(copy):
    rewrite(copy, files={TOKENIZER_FILE: digest_of(copy / TOKENIZER_FILE)})

    with pytest.raises(ArtefactMismatch, match=MODEL_FILE):
        EmbeddedModel.load(copy)


def test_a_model_made_from_another_source_is_refused_with_both_digests(copy):
    rewrite(copy, source_sha256="0" * 64)

    with pytest.raises(ArtefactMismatch) as caught:
        read_manifest(copy)

    assert (caught.value.expected, caught.value.found) == (SOURCE_SHA256, "0" * 64)
    assert COMMAND in str(caught.value)


def test_a_model_made_in_another_way_is_refused_with_both_ways(copy):
    rewrite(copy, recipe="float32/0")

    with pytest.raises(SettingsError) as caught:
        read_manifest(copy)

    assert all(part in str(caught.value) for part in ("float32/0", RECIPE, COMMAND))


@pytest.mark.parametrize("folder", ["", "nowhere"])
def test_a_folder_without_a_model_is_an_error_that_names_the_setting_and_the_command(tmp_path, folder):
    with pytest.raises(SettingsError) as caught:
        read_manifest(tmp_path / folder)

    assert caught.value.setting == "engine.models_dir"
    assert all(part in str(caught.value) for part in (str(tmp_path / folder), COMMAND))


@pytest.mark.parametrize("content", [b"", b"{", b"[]", b"{}", b'{"files": 1}', b"\xff"])
def test_a_manifest_that_cannot_be_read_is_an_error_that_names_the_command(tmp_path, content):
    (tmp_path / MANIFEST_FILE).write_bytes(content)

    with pytest.raises(SettingsError, match=COMMAND):
        read_manifest(tmp_path)


def test_the_fingerprint_does_not_depend_on_where_a_model_stands_or_what_made_it(artefact, copy, model):
    rewrite(copy, made_with={"torch": "99"})

    assert EmbeddedModel.load(copy, threads=2).fingerprint == model.fingerprint


@pytest.mark.parametrize("name", FILES)
def test_another_file_is_another_fingerprint(artefact, name):
    manifest, profile = read_manifest(artefact), read_profile()
    other = replace(manifest, files=manifest.files | {name: "0" * 64})

    assert fingerprint_of(other, profile) != fingerprint_of(manifest, profile)


@pytest.mark.parametrize("number", [field.name for field in fields(Profile)])
def test_another_number_in_the_profile_is_another_fingerprint(artefact, number):
    manifest, profile = read_manifest(artefact), read_profile()
    other = replace(profile, **{number: getattr(profile, number) + 0.001})

    assert fingerprint_of(manifest, other) != fingerprint_of(manifest, profile)


def test_a_fingerprint_is_pinned():
    # Whoever changes it on purpose makes every stored decision of this engine a miss.
    manifest = Manifest(SOURCE_SHA256, RECIPE, {"model.onnx": "a", "tokenizer.json": "b"}, {})
    profile = Profile(1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0)

    assert fingerprint_of(manifest, profile) == "010737163075dd0eef15320e1fa5102a"
