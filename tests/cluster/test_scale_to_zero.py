"""A Model that goes away when nobody asks anything new, and comes back."""

import json
import sys
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest
import yaml

from examples import demo_table
from examples.demo import Client
from examples.teaching import AFRESH, ask_about, choice, register
from tests.cluster.crowd import ask, request_body
from tests.cluster.fleet import WITHIN_S, eventually
from tests.running import Host, Service, free_port, one_cluster, settings_for, start

pytestmark = [
    pytest.mark.cluster,
    pytest.mark.timeout(240),
    pytest.mark.skipif(sys.platform != "linux", reason="looks into /proc"),
]

TO_ZERO = {
    "name": "Model",
    "num_replicas": "auto",
    "autoscaling_config": {
        "min_replicas": 0,
        "initial_replicas": 1,
        "max_replicas": 1,
        "upscale_delay_s": 0,
        "downscale_delay_s": 2,
        "metrics_interval_s": 0.5,
        "look_back_period_s": 1,
    },
}


@pytest.fixture(scope="module")
def service(host: Host, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Service]:
    host.stop()  # two Rays on this machine would share its ports
    with one_cluster():
        folder, port = tmp_path_factory.mktemp("zero"), free_port()
        settings = settings_for(folder, port, {"engine": {"kind": "fake"}})
        settings["applications"][0]["deployments"] = [TO_ZERO]
        path = folder / "settings.yaml"
        path.write_text(yaml.safe_dump(settings))
        service = start(path, port)
        yield service
        service.stop()


async def test_a_table_needs_no_model(service):
    rows = demo_table.read(whole=Path("not there"))
    learn, unseen = demo_table.divide(rows)
    question = choice(sorted({row.label for row in rows}), demo_table.INSTRUCTIONS)
    with closing(Client(service.url)) as client:
        record = register(client, "mail", learn, question, 120, fast_table={"min_saving": 0.0})
    assert record["status"]["state"] == "active"
    texts = [row.text for row in unseen[:10]]
    covered = next(text for text in texts if answered(service, text, AFRESH)["answered_by"] == "table")
    await eventually(no_model_is_left(service))

    answer = answered(service, covered)

    assert (answer["answered_by"], answer["certified"]) == ("table", True)
    assert not service.replicas("Model")
    assert service.send("DELETE", "/v1/tasks/mail")[0] == 200


def answered(service, text, headers=None):
    status, raw = service.post("/v1/systemone", ask_about("mail", text), headers)
    assert status == 200, raw
    (answer,) = json.loads(raw)["answers"].values()
    return answer


def no_model_is_left(service):
    async def look():
        return not service.replicas("Model")

    return look


async def test_hits_need_no_model_and_a_new_request_brings_it_back(service):
    async def the_new_request_is_answered():
        return (await ask(service.port, request_body("new"), WITHIN_S)).status == 200

    await ask(service.port, request_body("known"), WITHIN_S)
    await eventually(no_model_is_left(service))

    known = await ask(service.port, request_body("known"), WITHIN_S)
    assert (known.status, known.source) == (200, "replay")
    assert not service.replicas("Model")

    new = await ask(service.port, request_body("new"), WITHIN_S)
    assert new.status == 200 or (new.status == 503 and "retry-after" in new.headers)
    await eventually(the_new_request_is_answered)
    assert service.replicas("Model")
