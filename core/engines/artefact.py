"""The embedded model on disk: a folder whose manifest names every file by its digest."""

import json
from dataclasses import dataclass
from hashlib import blake2b, sha256
from pathlib import Path
from typing import Final

from core.engines.profile import MAX_TOKENS, Profile
from core.errors import ArtefactMismatch, SettingsError

NAME: Final = "minilm-l6-v2-int8"
RELEASE_DATE: Final = "2021-08-30"  # of the weights
SOURCE_SHA256: Final = "53aa51172d142c89d9012cce15ae4d6cc0ca6895895114379cacb4fab128d9db"
"""Digest of model.safetensors of sentence-transformers/all-MiniLM-L6-v2; another file is another model."""
RECIPE: Final = (
    "onnx opset 20, int8 weights per channel, int8 embeddings, mean pooling and unit length inside/1"
)
"""How the source was turned into the artefact. A change of it is a new folder."""
READOUT_VERSION: Final = 2  # of the code that turns vectors into probabilities
MODEL_FILE: Final = "model.onnx"
TOKENIZER_FILE: Final = "tokenizer.json"
FILES: Final = (MODEL_FILE, TOKENIZER_FILE)
MANIFEST_FILE: Final = "manifest.json"
FOLDER: Final = blake2b(f"{SOURCE_SHA256} {RECIPE}".encode(), digest_size=8).hexdigest()
"""Name of the artefact's folder: a digest of what it is made from and how."""

_PREPARE = "run `python -m jobs.models` to prepare it again"


@dataclass(frozen=True, slots=True)
class Manifest:
    """What a folder says it holds: file name -> SHA-256."""

    source_sha256: str
    recipe: str
    files: dict[str, str]
    made_with: dict[str, str]  # library -> version, for people who compare two machines


def read_manifest(folder: Path) -> Manifest:
    """Read what `folder` says it holds.

    Raises:
        SettingsError: no model was prepared there, or in another way than this version reads.
        ArtefactMismatch: it was made from another source.
    """
    try:
        manifest = Manifest(**json.loads((folder / MANIFEST_FILE).read_bytes()))
    except FileNotFoundError:
        raise SettingsError(
            "engine.models_dir", f"no model in {folder}; run `python -m jobs.models`"
        ) from None
    except (OSError, ValueError, TypeError) as error:
        raise SettingsError("engine.models_dir", f"{folder} cannot be read ({error}); {_PREPARE}") from None
    if manifest.source_sha256 != SOURCE_SHA256:
        raise ArtefactMismatch(f"the source of {folder}", SOURCE_SHA256, manifest.source_sha256, _PREPARE)
    if manifest.recipe != RECIPE:
        problem = f"{folder} was made as {manifest.recipe!r} and this version reads {RECIPE!r}"
        raise SettingsError("engine.models_dir", f"{problem}; {_PREPARE}")
    return manifest


def verify(folder: Path, manifest: Manifest) -> None:
    """Compare every file with its digest.

    Raises:
        ArtefactMismatch: a file changed, is gone, or was never named.
    """
    for name in FILES:
        expected, found = manifest.files.get(name, "none"), digest_of(folder / name)
        if found != expected:
            raise ArtefactMismatch(str(folder / name), expected, found, _PREPARE)


def digest_of(path: Path) -> str:
    """SHA-256 of a file, or "absent"."""
    try:
        return sha256(path.read_bytes()).hexdigest()
    except FileNotFoundError:
        return "absent"


def fingerprint_of(manifest: Manifest, profile: Profile) -> str:
    """Digest of everything in an engine over the two that can move an answer.

    Device, thread count and the library that runs the graph are left out: what they change is smaller than
    what a decision may rest on, and decisions of one machine should be replayed by another.
    """
    parts = {
        "files": manifest.files,
        "max_tokens": MAX_TOKENS,
        "profile": profile.digest(),
        "readout": READOUT_VERSION,
    }
    return blake2b(json.dumps(parts, sort_keys=True).encode(), digest_size=16).hexdigest()


def encoder_digest_of(manifest: Manifest) -> str:
    """Digest of everything in an encoder that can move a vector; tables over its vectors name it."""
    parts = {"files": manifest.files, "max_tokens": MAX_TOKENS}
    return blake2b(json.dumps(parts, sort_keys=True).encode(), digest_size=16).hexdigest()
