"""Run the benchmarks, print a table, write benchmarks/results/<date>-<commit>.json.

`python -m benchmarks.run [NAME ...]` runs every module of this folder that has a `run()`, or those named.
"""

import argparse
import datetime
import importlib
import json
import os
import pkgutil
import platform
import subprocess
import sys
from collections.abc import Sequence
from importlib.metadata import version
from pathlib import Path
from typing import Any

import benchmarks

HERE = Path(__file__).resolve().parent
VERSIONS = ("precedent", "ray", "orjson", "numpy", "onnxruntime", "uvloop", "redis")
COLUMNS = ("name", "value", "unit", "floor", "ratio", "spread", "target", "ok")


def main(arguments: list[str]) -> int:
    """Measure, print and write. Exit status 0 whatever the numbers say: they are for reading."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.run", description="Measure.")
    parser.add_argument(
        "names", nargs="*", help="modules of benchmarks/; all that have run() when none is named"
    )
    parser.add_argument("--no-write", action="store_true", help="print only")
    options = parser.parse_args(arguments)
    results = [
        row
        for name in options.names or found()
        for row in importlib.import_module(f"benchmarks.{name}").run()
    ]
    print(table(results))
    if not options.no_write:
        print(f"\nwritten to {write(results, HERE / 'results')}")
    return 0


def found() -> list[str]:
    """Modules of this folder that measure something, by name."""
    names = sorted(module.name for module in pkgutil.iter_modules(benchmarks.__path__))
    return [name for name in names if "\ndef run(" in (HERE / f"{name}.py").read_text() and name != "run"]


def write(results: Sequence[dict[str, Any]], folder: Path) -> Path:
    """Write the results file of today and this commit."""
    folder.mkdir(exist_ok=True)
    path = folder / f"{datetime.datetime.now(datetime.UTC).date()}-{commit()}.json"
    report = {"machine": machine(), "versions": versions(), "results": list(results)}
    path.write_text(json.dumps(report, indent=1) + "\n")
    return path


def table(results: Sequence[dict[str, Any]]) -> str:
    """The results as text in columns."""
    rows = [COLUMNS, *(tuple(_cell(row[column]) for column in COLUMNS) for row in results)]
    widths = [max(len(row[i]) for row in rows) for i in range(len(COLUMNS))]
    return "\n".join(
        "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)) for row in rows
    )


def commit() -> str:
    """The commit that was measured, marked when the tree holds more than it."""
    short = _git("rev-parse", "--short", "HEAD") or "none"
    return f"{short}-changed" if _git("status", "--porcelain", "--untracked-files=no") else short


def machine() -> str:
    """Processor, cores and system."""
    cpu = next((line.split(":")[1].strip() for line in _cpuinfo() if line.startswith("model name")), "")
    return f"{cpu or platform.machine()}, {os.cpu_count()} cores, {platform.system()} {platform.release()}"


def versions() -> dict[str, str]:
    """Python and the packages whose speed shows in the numbers."""
    return {"python": platform.python_version(), **{name: version(name) for name in VERSIONS}}


def _cpuinfo() -> list[str]:
    try:
        return Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return []


def _git(*arguments: str) -> str:
    done = subprocess.run(["git", *arguments], cwd=HERE, capture_output=True, text=True, check=False)
    return done.stdout.strip()


def _cell(value: object) -> str:
    if isinstance(value, bool):
        return "yes" if value else "NO"
    if isinstance(value, float):
        return f"{value:,.3g}" if abs(value) < 100 else f"{value:,.0f}"
    if isinstance(value, list):
        return " to ".join(map(_cell, value))
    return "-" if value is None else str(value)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
