"""One vector per token: what a static student knows of a language before it sees an example.

A folder of them has the shape that model2vec gives its models, so that those are read, too; the one that
`python -m jobs.models` distils from the embedded model has a manifest beside it.
"""

import json
from dataclasses import dataclass
from hashlib import blake2b, sha256
from pathlib import Path
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from core.errors import ArtefactMismatch, SettingsError
from core.tables import container
from core.tables.tokens import Tokens

ENGLISH: Final = "english"
HUB_NAMES: Final = {"multilingual": "minishlab/potion-multilingual-128M"}
SOURCE_SHA256: Final = "53aa51172d142c89d9012cce15ae4d6cc0ca6895895114379cacb4fab128d9db"
"""Digest of the encoder's weights: those of the embedded model."""
RECIPE: Final = f"mean over [CLS] token [SEP], 256 components, SIF 1e-4, float16, of {SOURCE_SHA256}/1"
"""What the distilled vectors are made of and how. A change of it is a new folder."""
FOLDER: Final = blake2b(RECIPE.encode(), digest_size=8).hexdigest()
TOKENIZER_FILE: Final = "tokenizer.json"
VECTORS_FILE: Final = "model.safetensors"
MANIFEST_FILE: Final = "manifest.json"
FILES: Final = (VECTORS_FILE, TOKENIZER_FILE)
LAYOUTS: Final = (
    # subfolder, name of the array: as model2vec and as sentence-transformers write them
    (".", "embeddings"),
    (".", "embedding.weight"),
    ("0_StaticEmbedding", "embedding.weight"),
)

_SETTING: Final = "fast_table.static_model"
_PREPARE: Final = "run `python -m jobs.models` to prepare it again"

Vectors = npt.NDArray[np.float32]  # (tokens, dim)


@dataclass(frozen=True, slots=True)
class StaticVectors:
    """A tokenizer and a vector for each of its tokens, weighted: the vector of a text is their mean.

    The row of the unknown token is zero, and so is that of any other token of which nothing is known.
    """

    tokenizer_json: bytes
    vectors: Vectors  # (tokens, dim), read-only
    digest: str  # of both, hex


def load_static(name: str, models_dir: Path) -> StaticVectors:
    """The vectors that a setting names.

    Args:
        name: "english" (the distilled ones), "multilingual", a folder with a model2vec model, or the id of
            one on a Hugging Face hub.
        models_dir: where `python -m jobs.models` keeps what it prepares.

    Raises:
        SettingsError: no vectors there, or of a form that this version does not read.
        ArtefactMismatch: a file is not the one that the manifest names.
    """
    return read_folder(_folder(name, models_dir))


def tokenizer_of(name: str, models_dir: Path) -> bytes:
    """The tokenizer of the static vectors that `load_static` reads, as it is written; raises the same."""
    folder = _folder(name, models_dir)
    for subfolder, _ in LAYOUTS:
        if (folder / subfolder / TOKENIZER_FILE).is_file():
            return (folder / subfolder / TOKENIZER_FILE).read_bytes()
    raise SettingsError(_SETTING, f"{folder} holds no {TOKENIZER_FILE}; give another folder, or {ENGLISH!r}")


def read_folder(folder: Path) -> StaticVectors:
    """The vectors in a folder of one of the `LAYOUTS`.

    Raises:
        SettingsError: none are there, or they do not fit the tokenizer beside them.
        ArtefactMismatch: the file of arrays is damaged.
    """
    for subfolder, array in LAYOUTS:
        place = folder / subfolder
        if (place / VECTORS_FILE).is_file() and (place / TOKENIZER_FILE).is_file():
            arrays, _ = container.open_file(place / VECTORS_FILE)
            if array in arrays:
                return _of(folder, arrays[array], arrays, (place / TOKENIZER_FILE).read_bytes())
    problem = f"{folder} holds no {VECTORS_FILE} with the vectors of a {TOKENIZER_FILE} beside it"
    raise SettingsError(_SETTING, f"{problem}; give the folder of a model2vec model, or {ENGLISH!r}")


def verify(folder: Path) -> None:
    """Compare the distilled vectors in `folder` with their manifest.

    Raises:
        SettingsError: none were prepared there.
        ArtefactMismatch: a file changed, is gone, or was never named.
    """
    try:
        named = json.loads((folder / MANIFEST_FILE).read_bytes())["files"]
        for file in FILES:
            expected, found = str(named.get(file, "none")), _digest(folder / file)
            if found != expected:
                raise ArtefactMismatch(str(folder / file), expected, found, _PREPARE)
    except FileNotFoundError:
        raise SettingsError(_SETTING, f"no vectors in {folder}; run `python -m jobs.models`") from None
    except (OSError, ValueError, TypeError, KeyError, AttributeError) as error:
        raise SettingsError(_SETTING, f"{folder} cannot be read ({error}); {_PREPARE}") from None


def _folder(name: str, models_dir: Path) -> Path:
    if name == ENGLISH:
        verify(models_dir / FOLDER)
        return models_dir / FOLDER
    return Path(name) if Path(name).is_dir() else _from_hub(HUB_NAMES.get(name, name))


def _digest(path: Path) -> str:
    try:
        return sha256(path.read_bytes()).hexdigest()
    except FileNotFoundError:
        return "absent"


def _of(
    folder: Path, table: npt.NDArray[Any], arrays: dict[str, npt.NDArray[Any]], tokenizer_json: bytes
) -> StaticVectors:
    try:
        tokens = Tokens(tokenizer_json)
        vectors = _one_each(table, arrays.get("mapping"), arrays.get("weights"))
    except Exception as error:  # the tokenizer's library raises nothing narrower
        raise SettingsError(_SETTING, f"{folder} cannot be read ({error}); give another folder") from None
    if vectors.ndim != 2 or len(vectors) < tokens.size or not np.isfinite(vectors).all():
        problem = f"{folder} has vectors of shape {vectors.shape} for {tokens.size} tokens"
        raise SettingsError(_SETTING, f"{problem}, and needs a finite one for each; give another folder")
    vectors = vectors[: tokens.size]
    if tokens.unknown_id >= 0:
        vectors[tokens.unknown_id] = 0.0
    vectors.flags.writeable = False
    digest = blake2b(tokenizer_json, digest_size=16)
    digest.update(vectors.tobytes())
    return StaticVectors(tokenizer_json, vectors, digest.hexdigest())


def _one_each(
    table: npt.NDArray[Any], mapping: npt.NDArray[Any] | None, weights: npt.NDArray[Any] | None
) -> Vectors:
    """A weighted vector per token; `mapping` says which row, where several tokens share one."""
    vectors = np.array(table if mapping is None else table[mapping], np.float32)
    if weights is not None:
        vectors *= np.asarray(weights, np.float32)[: len(vectors), None]
    return vectors


def _from_hub(name: str) -> Path:
    advice = f"give the folder of a model2vec model, or {ENGLISH!r}"
    try:
        from huggingface_hub import snapshot_download  # noqa: PLC0415  slow to import, and rarely needed
    except ImportError:
        problem = f"{name!r} is no folder here, and huggingface_hub, which could fetch it, is not installed"
        raise SettingsError(_SETTING, f"{problem}; {advice}") from None
    wanted = [f"{prefix}{file}" for prefix in ("", "0_StaticEmbedding/") for file in FILES]
    try:
        return Path(snapshot_download(name, allow_patterns=wanted))
    except Exception as error:  # of the hub, of HTTP, of the disk: all mean that it is not here
        problem = f"{name!r} is no folder here, and the hub did not give it ({type(error).__name__})"
        raise SettingsError(_SETTING, f"{problem}; {advice}") from None
