"""Run the conformance suite of System One servers and read what it found."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

from tests.running import Service


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
    """The ids of the requirements that passed, failed and were skipped: 48 in all."""
    found: dict[str, set[str]] = {"pass": set(), "fail": set(), "skip": set()}
    for result in report["results"]:
        found[result["status"]].add(result["id"])
    assert sum(map(len, found.values())) == 48
    return found
