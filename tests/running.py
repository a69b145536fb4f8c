"""The real service, started as a person starts it, at most one at a time on this machine."""

import fcntl
import http.client
import signal
import socket
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from config.paths import CHECKOUT
from deployments.processes import descendants

STOP_WITHIN_S = 60.0
LOCK = Path(tempfile.gettempdir()) / "precedent-one-cluster.lock"


@dataclass
class Service:
    """A running service."""

    port: int
    folder: Path  # its store and its settings file
    process: subprocess.Popen[str]
    reader: threading.Thread
    log: list[str]

    @property
    def url(self) -> str:
        """Where it answers."""
        return f"http://127.0.0.1:{self.port}"

    def replicas(self, deployment: str) -> list[int]:
        """Process ids of the live replicas of `deployment`: Router or Model."""
        title = f"ray::ServeReplica:precedent:{deployment}"
        return [pid for pid in descendants(self.process.pid) if _title(pid).startswith(title)]

    def post(self, path: str, body: bytes, headers: Mapping[str, str] | None = None) -> tuple[int, bytes]:
        """Send one body of JSON on a connection of its own; status and body of the response."""
        return self.send("POST", path, body, {"Content-Type": "application/json", **(headers or {})})

    def send(
        self, method: str, path: str, body: bytes | None = None, headers: Mapping[str, str] | None = None
    ) -> tuple[int, bytes]:
        """Send one request on a connection of its own; status and body of the response."""
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=30)
        try:
            connection.request(method, path, body, dict(headers or {}))
            response = connection.getresponse()
            return response.status, response.read()
        finally:
            connection.close()

    def stop(self) -> int:
        """Stop it as Ctrl-C does; its exit status."""
        self.process.send_signal(signal.SIGINT)
        status = self.process.wait(timeout=STOP_WITHIN_S)
        self.reader.join(timeout=STOP_WITHIN_S)
        return status


class Host:
    """Runs one service at a time; asking for other settings stops the one before."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._wanted: str | None = None
        self._service: Service | None = None
        self._running = ExitStack()

    def service(
        self, args: Mapping[str, Any] | None = None, extra: Mapping[str, Any] | None = None
    ) -> Service:
        """A service with these settings: the one that runs, or a new one.

        Args:
            args: what is put over `args:` of serve_config.yaml, one level deep.
            extra: what is put over the top level, one level deep.
        """
        wanted = repr((args, extra))
        if self._service is None or wanted != self._wanted or self._service.process.poll() is not None:
            self.stop()
            self._service, self._wanted = self._start(args or {}, extra or {}), wanted
        return self._service

    def stop(self) -> None:
        """Stop what runs."""
        if self._service is not None:
            self._service.stop()
            self._service = None
        self._running.close()

    def _start(self, args: Mapping[str, Any], extra: Mapping[str, Any]) -> Service:
        self._running.enter_context(one_cluster())
        folder = Path(tempfile.mkdtemp(dir=self._folder))
        port = free_port()
        settings = folder / "settings.yaml"
        settings.write_text(yaml.safe_dump(settings_for(folder, port, args, extra)))
        return start(settings, port)


@contextmanager
def one_cluster() -> Iterator[None]:
    """Wait until no other test or benchmark on this machine runs a cluster, and keep others waiting."""
    with LOCK.open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def settings_for(
    folder: Path, port: int, args: Mapping[str, Any], extra: Mapping[str, Any] | None = None
) -> dict[str, Any]:
    """serve_config.yaml with a store in `folder`, a port, and whatever else a test wants."""
    settings: dict[str, Any] = yaml.safe_load((CHECKOUT / "serve_config.yaml").read_text())
    settings["http_options"]["port"] = port
    ours = settings["applications"][0]["args"]
    del ours["settings_file"]  # it names serve_config.yaml
    ours["store"] = f"sqlite:///{folder}/decisions.db"
    for target, changes in ((ours, args), (settings, extra or {})):
        for name, value in changes.items():
            both = isinstance(value, Mapping) and isinstance(target.get(name), dict)
            target[name] = {**target[name], **value} if both else value
    return settings


def start(settings: Path, port: int, launcher: str = "deployments.serve") -> Service:
    """Start the service and wait until it says that it is ready.

    Args:
        settings: its settings file.
        port: where it will answer.
        launcher: the module that starts it.

    Raises:
        RuntimeError: it ended first; the message holds what it printed.
    """
    process = subprocess.Popen(
        [sys.executable, "-m", launcher, "--end-with-parent", str(settings)],
        cwd=CHECKOUT,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,
    )
    log: list[str] = []
    ready = threading.Event()
    reader = threading.Thread(target=_read, args=(process, log, ready), daemon=True)
    reader.start()
    ready.wait()
    if not any("ready on" in line for line in log):
        process.wait(timeout=STOP_WITHIN_S)
        raise RuntimeError("the service did not start:\n" + "".join(log))
    return Service(port, settings.parent, process, reader, log)


def free_port() -> int:
    """A port that nobody listens on."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
    return port


def _read(process: subprocess.Popen[str], log: list[str], ready: threading.Event) -> None:
    assert process.stdout is not None
    with process.stdout:
        for line in process.stdout:
            log.append(line)
            if "ready on" in line:
                ready.set()
    ready.set()


def _title(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/cmdline").read_text(errors="replace")
    except OSError:
        return ""
