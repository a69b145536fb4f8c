"""Two Routers over one shared store, with two tenants."""

import json
import time

import pytest
import yaml

from deployments.auth import new_key
from tests.core.cache.servers import Server, valkey

pytestmark = pytest.mark.service

PATH = "/v1/systemone"
CLOCK_S = 0.1  # between taking the time here and in the Router


def body(state):
    question = {"type": "noul", "instructions": "Is a refund due?"}
    return json.dumps({"model": "jev-latest", "state": state, "questions": {"refund": question}}).encode()


def bearer(key):
    return {"Authorization": f"Bearer {key}"}


@pytest.fixture(scope="module")
def keys():
    """Tenant -> its key and the key's digest."""
    return {tenant: new_key() for tenant in ("acme", "globex")}


@pytest.fixture(scope="module")
def server():
    server = Server(valkey())
    yield server
    server.close()


@pytest.fixture
def guarded(host, keys, server, tmp_path_factory):
    """Two Routers with keys over one Valkey server."""
    path = tmp_path_factory.getbasetemp() / "keys.yaml"
    entries = [
        {"sha256": digest, "tenant": tenant, "scopes": ["decide", "read", "purge"]}
        for tenant, (_, digest) in keys.items()
    ]
    path.write_text(yaml.safe_dump({"keys": entries}))
    return host.service(args={"keys_file": str(path), "store": server.url, "router": {"replicas": 2}})


def ask(service, keys, tenant, state):
    status, answer = service.post(PATH, body(state), bearer(keys[tenant][0]))
    assert status == 200, answer
    return json.loads(answer)


def test_both_routers_give_one_answer_for_a_request(guarded, keys):
    replies = [ask(guarded, keys, "acme", "told to two Routers") for _ in range(20)]

    assert len({json.dumps(reply["answers"]) for reply in replies}) == 1
    assert [reply["x_precedent"]["source"] for reply in replies].count("model") == 1


def test_another_tenant_gets_a_decision_of_its_own(guarded, keys):
    one, other = (ask(guarded, keys, tenant, "said by both") for tenant in ("acme", "globex"))

    assert one["x_precedent"]["key"] != other["x_precedent"]["key"]
    assert other["x_precedent"]["source"] == "model"


def test_a_purge_at_one_router_is_in_force_on_the_other_within_a_second(guarded, keys):
    for _ in range(10):  # both have it in memory
        ask(guarded, keys, "acme", "to be purged")

    purged_at = time.time()
    status, _ = guarded.send("DELETE", "/v1/cache?all=true", headers=bearer(keys["acme"][0]))
    in_force = purged_at + 1.0
    replies = []
    while time.time() < in_force + 0.5:
        asked_at = time.time()
        replies.append((asked_at, ask(guarded, keys, "acme", "to be purged")["x_precedent"]))

    assert status == 200
    late = [(asked_at, about) for asked_at, about in replies if asked_at >= in_force]
    assert late
    for asked_at, about in late:
        assert asked_at - about["age_s"] >= purged_at - CLOCK_S, (
            "a decision from before the purge was replayed"
        )


def test_without_its_store_the_service_still_answers(guarded, keys, server):
    ask(guarded, keys, "acme", "before")
    server.kill()
    try:
        replies = [ask(guarded, keys, "acme", f"meanwhile {n}") for n in range(10)]
        again = ask(guarded, keys, "acme", "before")
    finally:
        server.start()

    assert all(reply["x_precedent"]["source"] == "model" for reply in replies)
    assert again["answers"]["refund"]["type"] == "noul"
