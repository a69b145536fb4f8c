"""Refuse misspelt settings, ours and Ray's, before anything starts.

Ray reads a settings file with models that ignore unknown names: `num_replica: 4` is accepted to no effect.
`make serve` and `python -m deployments.check serve_config.yaml` compare every name with Ray's models. `serve
run` and `serve deploy` parse the file on their own and hand only `args:` to the app; with `settings_file` set
there, the app reads the file once more when it is built, and refuses the same mistakes.
"""

import difflib
import sys
import types
import typing
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, TypeVar

from pydantic import BaseModel, ValidationError
from ray.serve.config import AutoscalingConfig
from ray.serve.schema import (
    DeploymentSchema,
    RayActorOptionsSchema,
    ServeDeploySchema,
)

from config.paths import CHECKOUT, absolute_store
from config.reading import IMPORT_PATH, parse, problem_of
from config.settings import AppConfig
from core.cache.stores import open_store
from core.errors import SettingsError
from deployments.auth import read_keys

M = TypeVar("M", bound=BaseModel)

LOOPBACK = ("127.0.0.1", "localhost", "::1")

# Where Ray declares a dict, or a union with one, the model that will read it.
_MODELS: Mapping[tuple[type[BaseModel], str], type[BaseModel]] = {
    (DeploymentSchema, "autoscaling_config"): AutoscalingConfig,
    (DeploymentSchema, "ray_actor_options"): RayActorOptionsSchema,
}


def main(arguments: list[str]) -> int:
    """Check the named file; print what is wrong. Exit status 0 or 2."""
    path = Path(arguments[0]) if arguments else CHECKOUT / "serve_config.yaml"
    try:
        read_settings(path)
    except SettingsError as error:
        print(error, file=sys.stderr)
        return 2
    print(f"{path}: every setting is known and in range")
    return 0


def read_settings(path: Path) -> ServeDeploySchema:
    """Read a settings file as strictly as this module can.

    Raises:
        SettingsError: the first problem: where, what, and what may have been meant.
    """
    settings = _validated(parse(path), ServeDeploySchema)
    for index, app in enumerate(settings.applications):
        if app.import_path == IMPORT_PATH:
            config = _validated(app.args, AppConfig, f"applications.{index}.args")
            refuse_open_doors(settings.http_options.host, config)
            _refuse_what_cannot_work(path, config)
    return settings


def refuse_misspelt(config: AppConfig) -> None:
    """Check the file that `config` says it came from.

    Raises:
        SettingsError: a misspelt setting, a missing file, or a file that says something else than `config`.
    """
    path = CHECKOUT / str(config.settings_file)
    apps = read_settings(path).applications
    if not any(
        AppConfig.model_validate(app.args) == config for app in apps if app.import_path == IMPORT_PATH
    ):
        raise SettingsError(
            "settings_file",
            f"{path} is not the file that this app was started with: its args differ; name the right file, "
            "or leave settings_file out to start without checking Ray's own settings",
        )


def _refuse_what_cannot_work(path: Path, config: AppConfig) -> None:
    open_store(absolute_store(config.store), config.cache.max_entries)  # opens and connects to nothing yet
    if config.keys_file is not None:
        read_keys(Path(config.keys_file))
    if config.settings_file is not None and (CHECKOUT / config.settings_file).resolve() != path.resolve():
        raise SettingsError(
            "settings_file",
            f"names {config.settings_file}, and these settings are in {path}; name that, or leave it out",
        )


def refuse_open_doors(host: str, config: AppConfig) -> None:
    """Refuse to listen where other machines reach us while nobody needs a key.

    Raises:
        SettingsError: names the host.
    """
    if config.keys_file is None and host not in LOOPBACK:
        raise SettingsError(
            "http_options.host",
            f"{host} is reachable from other machines, and keys_file is not set: anybody there could ask, "
            "and fill the store; set keys_file, or listen on 127.0.0.1",
        )


def misspelt(raw: Mapping[str, Any], model: type[BaseModel], at: str = "") -> Iterator[SettingsError]:
    """Names in `raw` that `model`, or a model inside it, does not have."""
    known = {alias for name, field in model.model_fields.items() for alias in (name, field.alias) if alias}
    for name, value in raw.items():
        where = f"{at}.{name}" if at else str(name)
        if name not in known:
            yield SettingsError(where, _unknown(str(name), known))
            continue
        inner = _inner_model(model, name)
        if inner is not None:
            for index, part in enumerate(value if isinstance(value, list) else [value]):
                if isinstance(part, Mapping):
                    yield from misspelt(part, inner, f"{where}.{index}" if isinstance(value, list) else where)


def _inner_model(model: type[BaseModel], name: str) -> type[BaseModel] | None:
    if (model, name) in _MODELS:
        return _MODELS[model, name]
    field = model.model_fields.get(name)
    return None if field is None else next(_models_in(field.annotation), None)


def _models_in(annotation: Any) -> Iterator[type[BaseModel]]:  # noqa: ANN401  whatever a type annotation may be
    if isinstance(annotation, type) and not isinstance(annotation, types.GenericAlias):
        if issubclass(annotation, BaseModel):
            yield annotation
        return
    for argument in typing.get_args(annotation):
        yield from _models_in(argument)


def _unknown(name: str, known: set[str]) -> str:
    close = difflib.get_close_matches(name, known, n=1)
    meant = f"did you mean {close[0]}?" if close else f"known are {', '.join(sorted(known))}"
    return f"there is no such setting; {meant}"


def _validated(raw: Mapping[str, Any], model: type[M], at: str = "") -> M:
    for problem in misspelt(raw, model, at):
        raise problem
    try:
        return model.model_validate(raw)
    except ValidationError as error:
        raise problem_of(error, at) from None


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
