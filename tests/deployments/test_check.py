import pytest
import yaml

from config.paths import CHECKOUT
from config.settings import AppConfig
from core.errors import SettingsError
from deployments import check
from tests.deployments.test_auth import entry, write_keys


@pytest.fixture
def settings():
    return yaml.safe_load((CHECKOUT / "serve_config.yaml").read_text())


@pytest.fixture
def written(tmp_path):
    def write(settings):
        path = tmp_path / "settings.yaml"
        path.write_text(settings if isinstance(settings, str) else yaml.safe_dump(settings))
        return path

    return write


def test_the_shipped_file_is_accepted():
    check.read_settings(CHECKOUT / "serve_config.yaml")


@pytest.mark.parametrize(
    ("path", "meant"),
    [
        (("http_option",), "http_options"),
        (("http_options", "prot"), "port"),
        (("logging_config", "enable_acces_log"), "enable_access_log"),
        (("applications", 0, "rout_prefix"), "route_prefix"),
        (("applications", 0, "deployments", 0, "num_replica"), "num_replicas"),
        (("applications", 0, "deployments", 0, "ray_actor_options", "num_cpu"), "num_cpus"),
        (("applications", 0, "deployments", 0, "autoscaling_config", "min_replica"), "min_replicas"),
        (("applications", 0, "args", "deadlines_s"), "deadline_s"),
        (("applications", 0, "args", "cache", "ttls"), "ttl_s"),
    ],
)
def test_a_misspelt_name_is_refused_wherever_it_stands_and_the_right_one_is_offered(
    settings, written, path, meant
):
    *parents, name = path
    settings["applications"][0]["deployments"] = [
        {"name": "Model", "ray_actor_options": {}, "autoscaling_config": {}}
    ]
    part = settings
    for parent in parents:
        part = part[parent]
    part[name] = 1

    with pytest.raises(SettingsError) as caught:
        check.read_settings(written(settings))

    assert caught.value.setting == ".".join(map(str, path))
    assert f"did you mean {meant}?" in str(caught.value)


def test_a_value_that_ray_refuses_is_refused_with_its_place(settings, written):
    settings["http_options"]["port"] = "eight thousand"

    with pytest.raises(SettingsError, match=r"http_options\.port"):
        check.read_settings(written(settings))


def test_a_value_of_ours_that_is_out_of_range_is_refused(settings, written):
    settings["applications"][0]["args"]["deadline_s"] = 0

    with pytest.raises(SettingsError, match="deadline_s"):
        check.read_settings(written(settings))


@pytest.mark.parametrize("text", ["- a list", "just text", "", "a: [1", "\t: tab"])
def test_a_file_that_holds_no_settings_is_refused(written, text):
    with pytest.raises(SettingsError):
        check.read_settings(written(text))


def test_a_file_that_is_not_there_is_refused(tmp_path):
    with pytest.raises(SettingsError, match="cannot be read"):
        check.read_settings(tmp_path / "none.yaml")


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "192.0.2.1"])
def test_without_keys_a_host_that_others_can_reach_is_refused(settings, written, host):
    settings["http_options"]["host"] = host

    with pytest.raises(SettingsError, match="keys_file is not set"):
        check.read_settings(written(settings))


def test_with_keys_the_service_may_listen_to_others(settings, written, tmp_path):
    settings["http_options"]["host"] = "0.0.0.0"
    _, acme = entry("acme")
    del settings["applications"][0]["args"]["settings_file"]  # it names another file
    settings["applications"][0]["args"]["keys_file"] = str(write_keys(tmp_path / "keys.yaml", acme))

    check.read_settings(written(settings))


@pytest.mark.parametrize(
    ("args", "says"),
    [
        ({"store": "sqlit:///x"}, "store: is sqlit:"),
        ({"store": "redis://"}, "there is no host"),
        ({"keys_file": "/nowhere/keys.yaml"}, "cannot be read"),
        ({"settings_file": "serve_config.yaml"}, "names serve_config.yaml, and these settings are in"),
    ],
)
def test_what_cannot_work_is_refused_before_anything_starts(settings, written, args, says):
    settings["applications"][0]["args"].update(args)

    with pytest.raises(SettingsError, match=says):
        check.read_settings(written(settings))


def test_a_file_that_names_no_host_is_refused_for_ray_would_listen_everywhere(settings, written):
    del settings["http_options"]["host"]

    with pytest.raises(SettingsError, match="keys_file is not set"):
        check.read_settings(written(settings))


def test_the_command_prints_the_problem_and_fails(settings, written, capsys):
    settings["proxy_locatoin"] = "HeadOnly"

    status = check.main([str(written(settings))])

    assert status == 2
    assert "proxy_locatoin: there is no such setting; did you mean proxy_location?" in capsys.readouterr().err


def test_an_app_that_is_built_reads_its_file_again_and_refuses_what_ray_ignored(settings, written):
    args = settings["applications"][0]["args"]
    settings["applications"][0]["deployments"] = [{"name": "Model", "num_replica": 4}]
    path = written(settings)
    args["settings_file"] = str(path)
    path.write_text(yaml.safe_dump(settings))

    with pytest.raises(SettingsError, match="num_replicas"):
        check.refuse_misspelt(AppConfig.model_validate(args))


def test_an_app_that_is_built_from_other_settings_than_its_file_holds_says_so():
    config = AppConfig(settings_file="serve_config.yaml", deployment="another")

    with pytest.raises(SettingsError, match="args differ"):
        check.refuse_misspelt(config)


def test_an_app_that_is_built_from_the_shipped_file_passes(settings):
    check.refuse_misspelt(AppConfig.model_validate(settings["applications"][0]["args"]))
