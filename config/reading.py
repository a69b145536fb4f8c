"""Reading the app's settings from `serve_config.yaml` without starting anything."""

from pathlib import Path
from typing import Any

import yaml
from pydantic import ValidationError

from config.settings import AppConfig
from core.errors import SettingsError

IMPORT_PATH = "deployments.app:build"


def parse(path: Path) -> dict[str, Any]:
    """The mapping that a settings file holds.

    Raises:
        SettingsError: it cannot be read, or holds something else.
    """
    try:
        raw = yaml.safe_load(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise SettingsError(str(path), f"cannot be read: {error.strerror}") from None
    except yaml.YAMLError as error:
        raise SettingsError(str(path), f"is not YAML: {error}") from None
    if not isinstance(raw, dict):
        raise SettingsError(str(path), "is not a mapping of settings")
    return raw


def problem_of(error: ValidationError, at: str = "") -> SettingsError:
    """The first thing that is wrong with settings, as an error of ours."""
    first = error.errors()[0]
    where = ".".join(map(str, [at, *first["loc"]] if at else first["loc"])) or "settings"
    return SettingsError(where, first["msg"].removeprefix("Value error, "))


def read_app_config(path: Path) -> AppConfig:
    """The settings of the one Precedent app in a file.

    Raises:
        SettingsError: there is none, there are several, or one is wrong.
    """
    apps = parse(path).get("applications") or []
    ours = [
        (index, app)
        for index, app in enumerate(apps)
        if isinstance(app, dict) and app.get("import_path") == IMPORT_PATH
    ]
    if len(ours) != 1:
        raise SettingsError(str(path), f"has {len(ours)} applications of {IMPORT_PATH}, and one is needed")
    index, app = ours[0]
    try:
        return AppConfig.model_validate(app.get("args") or {})
    except ValidationError as error:
        raise problem_of(error, f"applications.{index}.args") from None
