"""Starting and stopping the service for real, when all is well and when it is not."""

import os
import select
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from config.paths import CHECKOUT
from deployments.ingress import REQUIRED
from deployments.processes import descendants
from tests.running import free_port, one_cluster, settings_for, start

pytestmark = [pytest.mark.cluster, pytest.mark.skipif(sys.platform != "linux", reason="looks into /proc")]


@pytest.fixture
def alone(host):
    """No other cluster runs on this machine."""
    host.stop()
    with one_cluster():
        yield


def write(folder, changes=None):
    port = free_port()
    settings = settings_for(folder, port, {"engine": {"kind": "fake"}})
    settings["applications"][0].update(changes or {})
    path = folder / "settings.yaml"
    path.write_text(yaml.safe_dump(settings))
    return path, port


def test_a_service_that_is_told_to_stop_leaves_no_process(alone, tmp_path):
    service = start(*write(tmp_path))
    started = descendants(service.process.pid)

    status = service.stop()

    assert status == 0
    assert len(started) > 5
    assert [pid for pid in started if Path(f"/proc/{pid}").exists()] == []


def test_a_service_whose_starter_dies_stops_by_itself(alone, tmp_path):
    path, port = write(tmp_path)
    code = (
        "import sys; from pathlib import Path; from tests.running import start; "
        "service = start(Path(sys.argv[1]), int(sys.argv[2])); print(service.process.pid, flush=True); "
        "import os, signal; os.kill(os.getpid(), signal.SIGKILL)"
    )
    done = run("-c", code, str(path), str(port))

    gone = os.pidfd_open(int(done.stdout))
    assert select.select([gone], [], [], 60)[0]
    os.close(gone)


def test_a_model_that_loads_another_engine_than_the_app_was_built_for_never_becomes_healthy(alone, tmp_path):
    path, _ = write(tmp_path, {"import_path": "tests.cluster.mismatched:build", "args": {}})

    done = run("-m", "deployments.serve", str(path))

    assert done.returncode == 1
    assert "the app was built for engine fake-0 and this replica loaded fake-1" in done.stderr


def test_without_the_ingress_settings_the_service_starts_and_warns_once(alone, tmp_path, monkeypatch):
    for name in REQUIRED:
        monkeypatch.setenv(name, "0")

    service = start(*write(tmp_path))
    try:
        (router,) = service.replicas("Router")
        (log,) = logs_of(router)
        warnings = [line for line in log.read_text().splitlines() if "the slow way" in line]
    finally:
        service.stop()

    assert len(warnings) == 1
    assert all(name in warnings[0] for name in REQUIRED)


def run(*arguments):
    command = [sys.executable, *arguments]
    return subprocess.run(command, cwd=CHECKOUT, capture_output=True, text=True, check=False)


def logs_of(pid):
    """The replica's log file of this process."""
    opened = {Path(os.readlink(fd)) for fd in Path(f"/proc/{pid}/fd").iterdir() if fd.is_symlink()}
    return [path for path in opened if path.name.startswith("replica_")]
