"""What holds for the tree as a whole."""

import importlib
import re
import subprocess
import sys
import tomllib
from importlib.metadata import version
from pathlib import Path

import pytest
import yaml
from ray.serve.schema import DeploymentSchema, HTTPOptionsSchema, ServeApplicationSchema, ServeDeploySchema

CHECKOUT = Path(__file__).resolve().parent.parent
PROJECT = tomllib.loads((CHECKOUT / "pyproject.toml").read_text())
SERVE_CONFIG = yaml.safe_load((CHECKOUT / "serve_config.yaml").read_text())
OUR_FOLDERS = ("config", "core", "deployments", "jobs", "tests", "benchmarks", "examples")


def our_python_files():
    return [path for folder in OUR_FOLDERS for path in (CHECKOUT / folder).rglob("*.py")]


@pytest.mark.parametrize("name", ["config", "core", "deployments", "jobs"])
def test_a_package_with_a_common_name_is_the_one_of_this_checkout(name):
    package = importlib.import_module(name)

    assert Path(str(package.__file__)).is_relative_to(CHECKOUT)


def test_every_package_of_the_tree_is_listed_for_installation():
    found = {
        ".".join(path.parent.relative_to(CHECKOUT).parts)
        for folder in ("config", "core", "deployments", "jobs")
        for path in (CHECKOUT / folder).rglob("__init__.py")
    }

    assert set(PROJECT["tool"]["setuptools"]["packages"]) == found


def test_the_changelog_describes_the_version_of_the_project():
    newest = re.search(r"^## \[(.+?)\]", (CHECKOUT / "CHANGELOG.md").read_text(), re.MULTILINE)

    assert newest is not None
    assert newest.group(1) == PROJECT["project"]["version"] == version("precedent")


def test_the_lock_pins_every_direct_dependency():
    project = PROJECT["project"]
    wanted = [
        *project["dependencies"],
        *(each for extra in project["optional-dependencies"].values() for each in extra),
    ]
    locked = {
        normal(line.split("==")[0])
        for line in (CHECKOUT / "constraints.txt").read_text().splitlines()
        if "==" in line and not line.startswith("#")
    }

    assert {normal(re.split(r"[\[<>=;\s]", each)[0]) for each in wanted} <= locked


def test_the_lock_pins_torch_without_a_build_label():
    assert "torch==2.13.0" in (CHECKOUT / "constraints.txt").read_text().splitlines()


def normal(name):
    return re.sub(r"[-_.]+", "-", name).lower()


@pytest.mark.parametrize(
    ("part", "schema"),
    [
        (SERVE_CONFIG, ServeDeploySchema),
        (SERVE_CONFIG["http_options"], HTTPOptionsSchema),
        *((app, ServeApplicationSchema) for app in SERVE_CONFIG["applications"]),
        *(
            (each, DeploymentSchema)
            for app in SERVE_CONFIG["applications"]
            for each in app.get("deployments", ())
        ),
    ],
)
def test_no_name_in_the_settings_file_is_misspelt(part, schema):
    assert set(part) <= set(schema.model_fields)


def test_nobody_postpones_annotations():
    # Serve passes the app's builder an unvalidated dict when its module does, and nothing here needs it.
    postponed = "from __future__ import " + "annotations"

    assert [path for path in our_python_files() if postponed in path.read_text()] == []


def test_tests_are_no_package():
    # Two test files may share a name; pytest imports them by path.
    assert list((CHECKOUT / "tests").rglob("__init__.py")) == []


@pytest.mark.parametrize("heavy", ["torch", "transformers", "onnx", "onnxruntime", "tokenizers"])
def test_a_router_process_does_not_load(heavy):
    code = f"import sys, deployments.app; sys.exit({heavy!r} in sys.modules)"

    assert subprocess.run([sys.executable, "-c", code], cwd=CHECKOUT, check=False).returncode == 0


def test_core_can_be_used_without_ray_or_a_web_framework():
    code = (
        "import sys, pkgutil, importlib, core.routing; "
        "sys.exit(bool({'ray', 'starlette', 'fastapi', 'pydantic'} & set(sys.modules)))"
    )

    assert subprocess.run([sys.executable, "-c", code], cwd=CHECKOUT, check=False).returncode == 0


def test_the_help_lists_every_target_that_is_meant_for_people():
    text = (CHECKOUT / "Makefile").read_text()
    listed = set(re.findall(r"^([a-z-]+): .*##", text, re.MULTILINE))
    phony = re.search(r"^\.PHONY: (.+)$", text, re.MULTILINE)

    assert phony is not None
    assert set(phony.group(1).split()) == listed
