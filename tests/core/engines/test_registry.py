"""Whoever only describes an engine pays for no runtime; whoever loads it gets what was described."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from core.engines.registry import EngineSpec, describe, load
from core.errors import SettingsError

CHECKOUT = Path(__file__).resolve().parents[3]
HEAVY = ("torch", "transformers", "onnxruntime", "onnx", "tokenizers", "sklearn")


def heavy_modules_after(code: str) -> set[str]:
    """Which heavy modules a fresh interpreter holds once it ran `code`."""
    report = f"import json, sys; print(json.dumps([name for name in {HEAVY} if name in sys.modules]))"
    done = subprocess.run(
        [sys.executable, "-c", f"{code}\n{report}"],
        cwd=CHECKOUT,
        capture_output=True,
        text=True,
        timeout=120,
        check=True,
    )
    return set(json.loads(done.stdout.splitlines()[-1]))


def test_describing_the_embedded_engine_loads_no_runtime(artefact):
    code = f"""
from core.engines.registry import EngineSpec, describe
print(describe(EngineSpec(model_dir={str(artefact)!r})))
"""

    assert heavy_modules_after(code) == set()


def test_a_router_loads_no_runtime():
    assert heavy_modules_after("import deployments.router") == set()


def test_loading_the_embedded_engine_loads_its_runtime_and_no_other(artefact):
    code = f"""
from core.engines.registry import EngineSpec, load
load(EngineSpec(model_dir={str(artefact)!r}))
"""

    assert heavy_modules_after(code) == {"onnxruntime", "tokenizers"}


@pytest.mark.parametrize("kind", ["embedded", "fake"])
async def test_the_engine_that_is_loaded_is_the_one_that_was_described(artefact, kind):
    spec = EngineSpec(kind, str(artefact), seed=3)

    described, engine = describe(spec), load(spec)
    await engine.close()

    assert (engine.name, engine.fingerprint) == (described.name, described.fingerprint)
    assert engine.limits.max_tokens == described.max_tokens


@pytest.mark.parametrize("what", [describe, load])
def test_a_kind_that_does_not_exist_is_an_error_that_names_those_that_do(what):
    with pytest.raises(SettingsError) as caught:
        what(EngineSpec("gigantic"))

    assert all(part in str(caught.value) for part in ("engine.kind", "'gigantic'", "embedded", "fake"))


@pytest.mark.parametrize("what", [describe, load])
@pytest.mark.parametrize("model_dir", [None, "/nowhere"])
def test_an_engine_whose_model_was_not_prepared_is_an_error_that_names_the_command(what, model_dir):
    with pytest.raises(SettingsError, match=r"engine\.models_dir.*python -m jobs\.models"):
        what(EngineSpec(model_dir=model_dir))
