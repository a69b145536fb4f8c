"""The conformance suite of System One servers, unchanged, against the running service."""

import pytest

from tests.service.conformance import by_status, report_on

pytestmark = pytest.mark.service


def test_without_keys_every_must_and_every_should_is_met(service, tmp_path):
    found = by_status(report_on(service, tmp_path))

    assert found["fail"] == set()
    assert found["skip"] == {"auth.bearer", "auth.missing", "auth.invalid"}  # there is nobody to turn away
