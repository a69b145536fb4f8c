"""How much of the ingress's throughput is left when each request is answered by a replay.

The running service and a constant-answer application stand in one Serve instance, behind one HAProxy, with
answers of one size; the same client loads them in turns. Not measured: first decisions, a network.
"""

import json
import tempfile
from pathlib import Path
from typing import Any

import yaml

from benchmarks import load
from benchmarks.result import result
from config.settings import AppConfig
from tests.running import free_port, one_cluster, settings_for, start

TARGET = ">= 0.85"
TURNS = 5
SECONDS = 2.0
WARM_UP_S = 1.0
DEPTHS = (1, 8, 32)
PEER_PREFIX = "/constant"

BODY = json.dumps(
    {
        "model": "jev-latest",
        "state": "I was charged twice for my subscription this month and nobody answers my messages!",
        "questions": {
            "topic": {
                "type": "choice",
                "instructions": "What is this message about?",
                "criteria": {"billing": "charges and refunds", "technical": "something does not work"},
            }
        },
    },
    separators=(",", ":"),
).encode()


def run() -> list[dict[str, Any]]:
    """Throughput of replays against the constant, at several numbers of connections."""
    with one_cluster(), tempfile.TemporaryDirectory() as folder:
        port = free_port()
        path = Path(folder) / "settings.yaml"
        path.write_text(yaml.safe_dump(_settings(Path(folder), port)))
        service = start(path, port)
        try:
            service.post("/v1/systemone", BODY)  # the first decision; what follows replays it
            return [_at(port, depth) for depth in DEPTHS]
        finally:
            service.stop()


def _at(port: int, connections: int) -> dict[str, Any]:
    routes = ("/v1/systemone", PEER_PREFIX)
    for route in routes:
        load.send(port, route, BODY, connections, WARM_UP_S)
    ours: list[float] = []
    peers: list[float] = []
    for _ in range(TURNS):
        for route, rates in zip(routes, (ours, peers), strict=True):
            rates.append(load.send(port, route, BODY, connections, SECONDS).per_second)
    return result(f"HTTP replay, {connections} connections", ours, "requests/s", peers, TARGET)


def _settings(folder: Path, port: int) -> dict[str, Any]:
    settings = settings_for(folder, port, {})
    router = AppConfig().router
    settings["applications"].append(
        {
            "name": "peer",
            "route_prefix": PEER_PREFIX,
            "import_path": "benchmarks.constant_app:build",
            "args": {
                "answer_bytes": 328,
                "num_cpus": router.num_cpus,
                "max_ongoing_requests": router.max_ongoing_requests,
            },
        }
    )
    return settings
