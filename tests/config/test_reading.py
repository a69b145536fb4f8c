import pytest

from config.paths import CHECKOUT
from config.reading import read_app_config
from config.settings import AppConfig
from core.errors import SettingsError


def test_the_shipped_file_is_the_defaults():
    config = read_app_config(CHECKOUT / "serve_config.yaml")

    assert config == AppConfig(settings_file="serve_config.yaml")


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("applications: [", "is not YAML"),
        ("- 1", "is not a mapping of settings"),
        ("applications: []", "has 0 applications of deployments.app:build"),
        (
            "applications: [{import_path: 'deployments.app:build', args: {store: 7}}]",
            "applications.0.args.store: Input should be a valid string",
        ),
    ],
)
def test_another_file_is_refused_with_the_reason(tmp_path, text, said):
    path = tmp_path / "settings.yaml"
    path.write_text(text)

    with pytest.raises(SettingsError, match=said.replace("(", r"\(")):
        read_app_config(path)


def test_a_file_that_is_not_there_is_named(tmp_path):
    with pytest.raises(SettingsError, match=r"settings\.yaml: cannot be read"):
        read_app_config(tmp_path / "settings.yaml")
