import contextlib
import socket
import subprocess
import sys

import pytest
import yaml

from config.paths import CHECKOUT
from deployments.ingress import INGRESS_ENV
from deployments.serve import prepare_environment
from tests.running import free_port, settings_for


def launch(tmp_path, settings):
    path = tmp_path / "settings.yaml"
    path.write_text(yaml.safe_dump(settings))
    command = [sys.executable, "-m", "deployments.serve", str(path)]
    return subprocess.run(command, cwd=CHECKOUT, capture_output=True, text=True, check=False)


def test_the_launcher_sets_everything_that_the_ingress_needs():
    environ: dict[str, str] = {}

    prepare_environment(environ)

    assert INGRESS_ENV.items() <= environ.items()


def test_the_launcher_keeps_what_is_set_already():
    environ = {"RAY_SERVE_HAPROXY_NBTHREAD": "3", "RAY_SERVE_ENABLE_HA_PROXY": "0"}

    prepare_environment(environ)

    assert environ["RAY_SERVE_HAPROXY_NBTHREAD"] == "3"
    assert environ["RAY_SERVE_ENABLE_HA_PROXY"] == "0"


def test_the_launcher_puts_haproxys_own_pages_on_ports_that_are_free():
    environ: dict[str, str] = {}
    with socket.socket() as somebody:
        somebody.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        with contextlib.suppress(OSError):  # taken already, which is what this test wants
            somebody.bind(("", 8404))
            somebody.listen()

        prepare_environment(environ)

    assert environ["RAY_SERVE_HAPROXY_STATS_PORT"] != "8404"


def test_a_port_that_is_taken_is_named_and_nothing_starts(tmp_path):
    with socket.socket() as somebody:
        somebody.bind(("127.0.0.1", 0))
        somebody.listen()
        port = somebody.getsockname()[1]

        launched = launch(tmp_path, settings_for(tmp_path, port, {}))

    assert launched.returncode == 2
    assert f"something listens on 127.0.0.1:{port} already" in launched.stderr


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        ({"proxy_locatoin": "HeadOnly"}, "did you mean proxy_location?"),
        ({"http_options": {"host": "0.0.0.0"}}, "keys_file is not set"),
    ],
)
def test_settings_that_are_wrong_are_refused_before_anything_starts(tmp_path, change, sentence):
    launched = launch(tmp_path, settings_for(tmp_path, free_port(), {}, change))

    assert launched.returncode == 2
    assert sentence in launched.stderr
    assert launched.stdout == ""
