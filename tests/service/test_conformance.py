"""The conformance suite of System One servers, unchanged, against the running service."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.running import Service

pytestmark = pytest.mark.service


@pytest.fixture
def report(service: Service, tmp_path: Path) -> dict[str, Any]:
    """What the suite found, in full."""
    path = tmp_path / "report.json"
    command = [sys.executable, "-m", "jevcompat.cli", "test", service.url, "--json", str(path)]

    run = subprocess.run(command, capture_output=True, text=True, timeout=110, check=False)

    assert run.returncode == 0, run.stdout + run.stderr
    found: dict[str, Any] = json.loads(path.read_text())
    return found


def test_the_service_is_conformant_in_every_must_and_every_should(report):
    by_status: dict[str, set[str]] = {"pass": set(), "fail": set(), "skip": set()}
    for result in report["results"]:
        by_status[result["status"]].add(result["id"])

    assert report["summary"]["verdict"] == "conformant"
    assert by_status["fail"] == set()
    # Without keys there is nobody to turn away; these three are run against a service with keys.
    assert by_status["skip"] == {"auth.bearer", "auth.missing", "auth.invalid"}
    assert len(by_status["pass"]) == 45
    assert not report["inconclusive"]
    assert not report["case_errors"]
