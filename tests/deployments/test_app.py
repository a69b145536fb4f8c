import inspect

import pytest
from ray import serve
from ray.serve.deployment import Application

from config.settings import AppConfig
from core.errors import SettingsError
from deployments.app import build


def fake(**settings):
    return AppConfig.model_validate({"engine": {"kind": "fake"}, "store": "memory://", **settings})


def test_serve_can_see_the_class_of_the_settings_and_so_validates_them():
    (parameter,) = inspect.signature(build).parameters.values()

    assert parameter.annotation is AppConfig


def test_the_app_is_built_without_starting_anything():
    assert isinstance(build(fake()), Application)


def test_every_part_of_the_app_starts_in_one_process():
    serve.run(build(fake()), _local_testing_mode=True)


def test_an_app_whose_model_was_not_prepared_says_how_to_prepare_it(tmp_path):
    config = AppConfig.model_validate({"engine": {"models_dir": str(tmp_path)}})

    with pytest.raises(SettingsError, match=r"jobs\.models"):
        build(config)


def test_an_app_refuses_to_be_built_from_another_file_than_it_names():
    with pytest.raises(SettingsError, match="settings_file"):
        build(fake(settings_file="serve_config.yaml"))
