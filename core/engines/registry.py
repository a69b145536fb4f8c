"""Which engines there are, what identifies each, and how each is loaded.

Describing an engine reads a manifest and nothing heavier, so that a Router knows which engine its answers
come from without holding one.
"""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from core.engines.base import Engine
from core.errors import SettingsError


@dataclass(frozen=True, slots=True)
class EngineSpec:
    """What to load, and what it may use of its machine."""

    kind: str = "embedded"
    model_dir: str | None = None  # where `python -m jobs.models` put the embedded model
    threads: int = 1
    max_batch_tokens: int = 4_096
    seed: int = 0  # fake: another seed is another engine
    delay_s: float = 0.0  # fake: how long a call takes
    fickle: bool = False  # fake: no two calls answer alike
    runs_file: str | None = None  # fake: gets a line for each item whose run begins


@dataclass(frozen=True, slots=True)
class EngineIdentity:
    """What a Router must know of an engine."""

    name: str
    fingerprint: str
    max_tokens: int
    release_date: str  # YYYY-MM-DD, of the weights


def describe(spec: EngineSpec) -> EngineIdentity:
    """The identity of the engine that `load` would load.

    Raises:
        SettingsError: no such kind, or its model was not prepared.
    """
    return _kind(spec).describe(spec)


def load(spec: EngineSpec) -> Engine:
    """Load an engine. It may take seconds and hundreds of megabytes.

    Raises:
        SettingsError: no such kind, or its model was not prepared.
        ArtefactMismatch: its files are not those that its manifest names.
    """
    return _kind(spec).load(spec)


@dataclass(frozen=True, slots=True)
class _Kind:
    describe: Callable[[EngineSpec], EngineIdentity]
    load: Callable[[EngineSpec], Engine]


def _kind(spec: EngineSpec) -> _Kind:
    kind = _KINDS.get(spec.kind)
    if kind is None:
        raise SettingsError("engine.kind", f"is {spec.kind!r}; use one of {', '.join(_KINDS)}")
    return kind


def _describe_embedded(spec: EngineSpec) -> EngineIdentity:
    from core.engines.artefact import NAME, RELEASE_DATE, fingerprint_of, read_manifest
    from core.engines.profile import MAX_TOKENS, read_profile

    fingerprint = fingerprint_of(read_manifest(_model_dir(spec)), read_profile())
    return EngineIdentity(NAME, fingerprint, MAX_TOKENS, RELEASE_DATE)


def _load_embedded(spec: EngineSpec) -> Engine:
    # Only the process that runs the model pays for its runtime.
    from core.engines.batcher import Batched
    from core.engines.embedded import EmbeddedModel

    return Batched(EmbeddedModel.load(_model_dir(spec), spec.threads), spec.max_batch_tokens)


def _describe_fake(spec: EngineSpec) -> EngineIdentity:
    return EngineIdentity("fake", f"fake-{spec.seed}", 1_000_000, "2000-01-01")


def _load_fake(spec: EngineSpec) -> Engine:
    from core.engines.fake import FakeEngine

    return FakeEngine(spec.seed, spec.delay_s, fickle=spec.fickle, runs_file=spec.runs_file)


def _model_dir(spec: EngineSpec) -> Path:
    if spec.model_dir is None:
        raise SettingsError(
            "engine.models_dir", "is not set; run `python -m jobs.models` and name its folder"
        )
    return Path(spec.model_dir)


_KINDS = {
    "embedded": _Kind(_describe_embedded, _load_embedded),
    "fake": _Kind(_describe_fake, _load_fake),
}
