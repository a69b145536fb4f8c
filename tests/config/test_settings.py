import pytest
import yaml
from pydantic import ValidationError

from config.paths import CHECKOUT
from config.settings import AppConfig


def refusal(**settings):
    with pytest.raises(ValidationError) as caught:
        AppConfig.model_validate(settings)
    return str(caught.value)


def test_the_shipped_file_shows_every_setting_with_its_default():
    shipped = yaml.safe_load((CHECKOUT / "serve_config.yaml").read_text())["applications"][0]["args"]

    assert shipped.pop("settings_file") == "serve_config.yaml"
    defaults = AppConfig().model_dump(mode="json", exclude={"settings_file"})
    assert AppConfig.model_validate(shipped) == AppConfig()
    assert shipped.keys() == defaults.keys()
    for name, value in shipped.items():
        if isinstance(value, dict):
            assert value.keys() == defaults[name].keys(), name


@pytest.mark.parametrize(
    "settings",
    [
        {"stor": "memory://"},
        {"cache": {"ttl": 60}},
        {"limits": {"max_state_char": 1}},
        {"engine": {"thread": 2}},
        {"router": {"num_replicas": 2}},
        {"model": {"replica": 2}},
    ],
)
def test_a_misspelt_setting_is_refused(settings):
    assert "Extra inputs are not permitted" in refusal(**settings)


@pytest.mark.parametrize("ttl_s", [-1, -0.5, float("nan"), float("inf"), True, "60", "never"])
def test_a_time_to_live_that_is_no_length_of_time_is_refused(ttl_s):
    assert "ttl_s" in refusal(cache={"ttl_s": ttl_s})


@pytest.mark.parametrize("ttl_s", [None, 0, 0.5, 60, 1e-9, 10**12])
def test_a_time_to_live_may_be_never_or_nothing_or_any_number_of_seconds(ttl_s):
    assert AppConfig.model_validate({"cache": {"ttl_s": ttl_s}}).cache.ttl_s == ttl_s


@pytest.mark.parametrize(
    ("written", "meant"), [("mode: on", "on"), ('mode: "off"', "off"), ("mode: off", "off")]
)
def test_a_bare_on_or_off_means_itself_though_yaml_reads_a_boolean(written, meant):
    cache = yaml.safe_load(written)

    assert AppConfig.model_validate({"cache": cache}).cache.mode == meant


def test_a_deadline_that_comes_after_clients_give_up_is_refused_with_both_values():
    assert "deadline_s=12 comes too late: clients give up after 10 s" in refusal(deadline_s=12)


def test_a_batch_that_can_never_fill_is_refused_with_both_values():
    message = refusal(engine={"max_batch_tokens": 4096}, model={"max_ongoing_requests": 255})

    assert "engine.max_batch_tokens=4096" in message
    assert "model.max_ongoing_requests=255" in message


def test_a_batch_that_can_just_fill_is_accepted():
    AppConfig.model_validate({"engine": {"max_batch_tokens": 4096}, "model": {"max_ongoing_requests": 256}})


def test_a_state_that_no_body_can_hold_is_refused_with_both_values():
    message = refusal(limits={"max_body_bytes": 1024, "max_state_chars": 2048})

    assert "max_state_chars=2048" in message
    assert "max_body_bytes=1024" in message


def test_the_alias_of_clients_is_always_served_and_no_name_twice():
    config = AppConfig(models=("minilm", "jev-latest", "mine"))

    assert config.model_names("minilm") == ("minilm", "jev-latest", "mine")


def test_settings_cannot_change_after_they_were_checked():
    with pytest.raises(ValidationError, match="frozen"):
        AppConfig().deadline_s = 99.0  # type: ignore[misc]  # what is tried here
