"""The conformance suite, unchanged, against a service that asks for a key."""

import pytest
import yaml

from deployments.auth import new_key
from tests.running import Host
from tests.service.conformance import by_status, report_on

pytestmark = pytest.mark.service


def test_with_keys_every_must_and_every_should_is_met(host: Host, tmp_path):
    key, digest = new_key()
    keys = tmp_path / "keys.yaml"
    keys.write_text(yaml.safe_dump({"keys": [{"sha256": digest, "tenant": "acme", "scopes": ["decide"]}]}))

    found = by_status(report_on(host.service(args={"keys_file": str(keys)}), tmp_path, "--key", key))

    assert found["fail"] == set()
    assert found["skip"] == {"auth.ignored-when-off"}  # it is on
