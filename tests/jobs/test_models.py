"""The model is prepared once, whole or not at all, from the original's weights or from none."""

import json
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from core.engines.artefact import FOLDER, MANIFEST_FILE, MODEL_FILE, SOURCE_SHA256, digest_of
from core.engines.embedded import EmbeddedModel
from core.errors import ArtefactMismatch
from core.tables import static_vectors
from jobs.models import MODELS_DIR, PACKAGE, WEIGHTS_FILE, packaged, prepare

CHECKOUT = Path(__file__).resolve().parents[2]

IMPORTS_NO_TORCH = """
import sys
from jobs.models import main
status = main()
assert "torch" not in sys.modules, "torch was imported"
sys.exit(status)
"""

WITHOUT_THE_PACKAGE = f"""
import sys
from importlib.machinery import PathFinder
class Blind(PathFinder):
    @classmethod
    def find_spec(cls, name, *rest):
        return None if name == {PACKAGE!r} else super().find_spec(name, *rest)
sys.meta_path[sys.meta_path.index(PathFinder)] = Blind
from jobs.models import main
sys.exit(main())
"""

# The job imports torch when it has begun to make the model.
STOPPED_WHILE_MAKING = """
import os, signal, sys
from jobs.models import main
signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell's background jobs ignore it
def stop(event, arguments):
    if event == "import" and arguments[0] == "torch":
        os.kill(os.getpid(), {signal})
sys.addaudithook(stop)
sys.exit(main())
"""


def start(models_dir, *interpreter: str) -> "subprocess.Popen[str]":
    """Start the job in a process of its own."""
    return subprocess.Popen(
        [sys.executable, *(interpreter or ("-m", "jobs.models")), "--models-dir", str(models_dir)],
        cwd=CHECKOUT,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def ended(job: "subprocess.Popen[str]") -> "subprocess.CompletedProcess[str]":
    """Wait for a job."""
    try:
        out, err = job.communicate(timeout=200)
    finally:
        job.kill()
    return subprocess.CompletedProcess(job.args, job.returncode, out, err)


def spoil(path: Path) -> None:
    """Change one byte."""
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 1
    path.write_bytes(content)


@pytest.fixture(scope="session")
def prepared():
    """The model of this checkout, which `make test` prepares."""
    return prepare(MODELS_DIR)


@pytest.fixture(scope="module")
def two_at_once(prepared, tmp_path_factory):
    """What two jobs that start together make of a folder whose model is damaged: (folder, their ends)."""
    models_dir = tmp_path_factory.mktemp("models")
    shutil.copytree(prepared, models_dir / FOLDER)
    spoil(models_dir / FOLDER / MODEL_FILE)
    jobs = [start(models_dir) for _ in range(2)]
    return models_dir, [ended(job) for job in jobs]


def test_a_second_run_makes_nothing_and_does_not_import_torch(prepared):
    before = (prepared / MODEL_FILE).stat().st_mtime_ns

    run = ended(start(MODELS_DIR, "-c", IMPORTS_NO_TORCH))

    assert (run.returncode, run.stderr) == (0, "")
    assert EmbeddedModel.load(prepared).fingerprint in run.stdout
    assert (prepared / MODEL_FILE).stat().st_mtime_ns == before


def test_a_damaged_model_is_made_again_by_two_jobs_at_once_who_agree(two_at_once):
    models_dir, runs = two_at_once

    assert [(run.returncode, run.stderr) for run in runs] == [(0, "")] * 2
    fingerprint = EmbeddedModel.load(models_dir / FOLDER).fingerprint  # verifies every file
    assert all(fingerprint in run.stdout for run in runs)
    static_vectors.verify(models_dir / static_vectors.FOLDER)
    assert {path.name for path in models_dir.iterdir()} == {FOLDER, static_vectors.FOLDER}


def test_a_model_made_again_by_the_same_libraries_is_the_same_to_the_byte(two_at_once, prepared):
    models_dir, _ = two_at_once
    manifests = [
        json.loads((folder / MANIFEST_FILE).read_bytes()) for folder in (models_dir / FOLDER, prepared)
    ]

    if manifests[0]["made_with"] != manifests[1]["made_with"]:
        pytest.skip("the libraries changed since this checkout's model was prepared")

    assert manifests[0] == manifests[1]


def test_a_prepared_model_holds_nothing_that_names_the_machine_it_was_made_on(prepared):
    assert str(CHECKOUT).encode() not in (prepared / MODEL_FILE).read_bytes()


def test_changed_weights_are_refused_with_both_digests_and_nothing_is_left_behind(tmp_path):
    source, models_dir = tmp_path / "source", tmp_path / "models"
    source.mkdir()
    (source / WEIGHTS_FILE).write_bytes(b"other weights")

    with pytest.raises(ArtefactMismatch) as caught:
        prepare(models_dir, source)

    assert all(
        part in str(caught.value)
        for part in (str(source / WEIGHTS_FILE), SOURCE_SHA256, digest_of(source / WEIGHTS_FILE))
    )
    assert not models_dir.exists()


def test_absent_weights_are_refused(tmp_path):
    with pytest.raises(ArtefactMismatch, match="absent"):
        prepare(tmp_path / "models", tmp_path)


@pytest.mark.parametrize("ending", [signal.SIGINT, signal.SIGTERM], ids=lambda ending: ending.name)
def test_a_job_that_is_stopped_leaves_nothing(tmp_path, ending):
    run = ended(start(tmp_path, "-c", STOPPED_WHILE_MAKING.format(signal=int(ending))))

    assert run.returncode in (-ending, 128 + ending)
    assert "preparing" in run.stdout
    assert list(tmp_path.iterdir()) == []


def test_a_job_that_is_killed_leaves_no_model_and_nothing_that_a_later_one_keeps(tmp_path):
    job = STOPPED_WHILE_MAKING.format(signal=int(signal.SIGKILL))
    assert ended(start(tmp_path, "-c", job)).returncode == -signal.SIGKILL
    left = list(tmp_path.iterdir())
    assert FOLDER not in [path.name for path in left]

    ended(start(tmp_path, "-c", STOPPED_WHILE_MAKING.format(signal=int(signal.SIGTERM))))

    assert left  # or this test shows nothing
    assert list(tmp_path.iterdir()) == []


def test_without_the_package_the_job_fails_with_one_sentence_that_says_what_to_install(tmp_path):
    run = ended(start(tmp_path, "-c", WITHOUT_THE_PACKAGE))

    assert run.returncode == 1
    assert run.stderr.count("\n") == 1
    assert PACKAGE in run.stderr
    assert "pip install 'precedent[models]'" in run.stderr
    assert list(tmp_path.iterdir()) == []


def test_a_folder_that_cannot_be_made_is_one_sentence_too(tmp_path):
    (tmp_path / "file").write_bytes(b"")

    run = ended(start(tmp_path / "file" / "models"))

    assert run.returncode == 1
    assert run.stderr.count("\n") == 1
    assert str(tmp_path / "file") in run.stderr


def test_the_package_holds_the_originals_weights():
    assert digest_of(packaged() / WEIGHTS_FILE) == SOURCE_SHA256
