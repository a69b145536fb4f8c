"""A table learned from traffic at the running service, by a job beside it, on two Routers."""

import asyncio
import json
import subprocess
import sys
import time
from dataclasses import replace

import pytest

from config.paths import CHECKOUT
from core.tasks.record import Revocation, State
from core.tasks.record_json import decode, encode, names_objects
from core.tasks.stores import open_task_store
from examples.teaching import ask_about
from tests.core.cache.servers import Server, valkey
from tests.service.test_tasks import LEARN, QUESTION, UNSEEN

pytestmark = [pytest.mark.service, pytest.mark.timeout(300)]

WITHIN_S = 20.0


def ask(service, text):
    status, raw = service.post("/v1/systemone", ask_about("mail", text))
    assert status == 200, raw
    whole = json.loads(raw)
    (answer,) = whole["answers"].values()
    return answer | {"source": whole["x_precedent"]["source"]}


def shown(service):
    return json.loads(service.send("GET", "/v1/tasks/mail")[1])


def refit(service):
    settings = str(service.folder / "settings.yaml")
    job = subprocess.run(
        [sys.executable, "-m", "jobs.refit", "--all", "--settings", settings],
        cwd=CHECKOUT,
        capture_output=True,
        text=True,
        timeout=120,
        check=True,
    )
    return job.stdout


def until(true, service, texts):
    """Ask on until something is so; every Router is asked now and then."""
    end = time.monotonic() + WITHIN_S
    for number, row in enumerate(texts * 100):
        if true():
            return
        assert time.monotonic() < end, shown(service)["status"]
        ask(service, f"{row.text} {number}")


async def withdraw(service):
    """What a Router does whose watch has an alarm."""
    store = open_task_store(f"sqlite:///{service.folder}/decisions.db")
    entry = await store.get("default", "mail")
    assert entry is not None
    assert entry.value is not None
    record = decode(entry.value, "default", "mail", entry.version)
    assert record is not None
    assert record.table is not None
    revoked = record.with_revoked(Revocation(record.table.version, time.time(), "by the test", is_final=True))
    after = replace(revoked, state=State.SUSPENDED, reason="by the test")
    await store.put("default", "mail", encode(after), entry.version, time.time(), names_objects(after))
    await store.close()


def test_a_table_is_learned_from_traffic_serves_on_every_router_and_is_withdrawn_on_every_router(host):
    service = host.service(args={"router": {"replicas": 2}})
    wanted = {"learn": True, "min_rows": 400, "min_saving": 0.0, "explore": 0.0}
    body = {"id": "mail", "questions": {"topic": QUESTION}, "fast_table": wanted, "certify": {"alpha": 0.2}}
    assert service.post("/v1/tasks", json.dumps(body).encode())[0] == 200
    time.sleep(2.0)  # until the other Router has heard of it
    for row in LEARN[:420]:
        ask(service, row.text)
    time.sleep(2.5)  # both Routers bring their rows once a second
    assert shown(service)["learning"]["rows_had"] >= 400

    assert "version 1: at most 0.2 of the answers" in refit(service)
    states = set()

    def serves_everywhere():
        states.add(shown(service)["status"]["state"])
        return [shown(service)["status"]["state"] for _ in range(7)] == ["active"] * 7

    until(serves_everywhere, service, LEARN)
    assert states <= {"learning", "timing", "active"}
    answers = {row.text: ask(service, row.text) for row in UNSEEN}
    by_table = [text for text, answer in answers.items() if answer["answered_by"] == "table"]
    assert len(by_table) > 10

    asyncio.run(withdraw(service))
    time.sleep(3.0)  # "within seconds"
    for text in by_table:
        for _ in range(2):  # on either Router
            again = ask(service, text)
            assert (again["answered_by"], again["certified_reason"]) == ("model", "suspended")
    assert shown(service)["versions"][0]["watch"]["error"]["checks"] > 0


OUTAGE_S = 30.0
PENDING = 60  # rows that a Router holds meanwhile


def test_an_outage_of_the_store_costs_no_answer_and_no_more_rows_than_the_bound(host):
    server = Server(valkey())
    tasks = {"max_pending_rows": PENDING}
    service = host.service(args={"store": server.url, "tasks": tasks})
    wanted = {"learn": True, "min_rows": 150}
    body = {"id": "mail", "questions": {"topic": QUESTION}, "fast_table": wanted, "certify": {"alpha": 0.2}}
    assert service.post("/v1/tasks", json.dumps(body).encode())[0] == 200
    command = [sys.executable, "-m", "jobs.refit", "--watch", "1", "--store", server.url]
    job = subprocess.Popen(command, cwd=CHECKOUT)
    try:
        for row in LEARN[:100]:
            ask(service, row.text)
        time.sleep(3.0)
        assert shown(service)["learning"]["rows_had"] == 100

        server.freeze()
        end = time.monotonic() + OUTAGE_S
        asked = 0
        while time.monotonic() < end:
            assert ask(service, LEARN[100 + asked].text)["answered_by"] == "model"
            asked += 1
            time.sleep(OUTAGE_S / 150)
        assert shown(service)["versions"] == []
        server.thaw()

        time.sleep(12.0)  # the client's deadlines for calls that were under way, and one flush
        learning = shown(service)["learning"]
        assert asked > 2 * PENDING
        assert learning["rows_lost"] + learning["rows_had"] + learning["other_rows"] >= 100 + asked
        assert learning["rows_lost"] <= asked - PENDING
    finally:
        job.terminate()
        job.wait()
        server.close()
