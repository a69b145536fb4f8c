"""The conformance suite of System One servers, unchanged, against the running service."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

from deployments.auth import new_key
from tests.running import Host, Service

pytestmark = pytest.mark.service


def report_on(service: Service, folder: Path, *options: str) -> dict[str, Any]:
    """What the suite finds, in full."""
    path = folder / "report.json"
    command = [sys.executable, "-m", "jevcompat.cli", "test", service.url, "--json", str(path), *options]

    run = subprocess.run(command, capture_output=True, text=True, timeout=110, check=False)

    assert run.returncode == 0, run.stdout + run.stderr
    found: dict[str, Any] = json.loads(path.read_text())
    assert found["summary"]["verdict"] == "conformant"
    assert not found["inconclusive"]
    assert not found["case_errors"]
    return found


def by_status(report: dict[str, Any]) -> dict[str, set[str]]:
    found: dict[str, set[str]] = {"pass": set(), "fail": set(), "skip": set()}
    for result in report["results"]:
        found[result["status"]].add(result["id"])
    assert sum(map(len, found.values())) == 48
    return found


def test_without_keys_every_must_and_every_should_is_met(service, tmp_path):
    found = by_status(report_on(service, tmp_path))

    assert found["fail"] == set()
    assert found["skip"] == {"auth.bearer", "auth.missing", "auth.invalid"}  # there is nobody to turn away


def test_with_keys_every_must_and_every_should_is_met(host: Host, tmp_path):
    key, digest = new_key()
    keys = tmp_path / "keys.yaml"
    keys.write_text(yaml.safe_dump({"keys": [{"sha256": digest, "tenant": "acme", "scopes": ["decide"]}]}))

    found = by_status(report_on(host.service(args={"keys_file": str(keys)}), tmp_path, "--key", key))

    assert found["fail"] == set()
    assert found["skip"] == {"auth.ignored-when-off"}  # it is on
