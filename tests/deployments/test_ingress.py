import pytest

from deployments.ingress import INGRESS_ENV, REQUIRED, ingress_warnings


def test_the_settings_of_the_launcher_leave_nothing_to_warn_of():
    assert ingress_warnings(INGRESS_ENV) == []


def test_without_any_setting_there_is_one_warning_that_says_what_to_set():
    (warning,) = ingress_warnings({})

    for name, value in REQUIRED.items():
        assert f"{name}={value}" in warning


@pytest.mark.parametrize("name", REQUIRED)
def test_one_missing_setting_is_named_and_the_others_are_not(name):
    (warning,) = ingress_warnings({**INGRESS_ENV, name: "0"})

    assert name in warning
    assert not any(other in warning for other in REQUIRED if other != name)
