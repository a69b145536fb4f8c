"""Recurring questions at the running service: learned, certified, kept over a restart, and timed."""

import json
import os
import signal
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, suppress
from pathlib import Path

import pytest
import yaml

from benchmarks import table_latency
from deployments.processes import descendants
from examples import demo_table
from examples.demo import Client
from examples.teaching import ask_about, choice, register, remove
from tests.running import free_port, one_cluster, settings_for, start

pytestmark = [pytest.mark.service, pytest.mark.timeout(300)]

ROWS = demo_table.read(whole=Path("not there"))
LEARN, UNSEEN = demo_table.divide(ROWS)
QUESTION = choice(sorted({row.label for row in ROWS}), demo_table.INSTRUCTIONS)


def teach(url):
    with closing(Client(url)) as client:
        return register(client, "mail", LEARN, QUESTION, 120, fast_table={"min_saving": 0.0})


def table_answers(service, rows):
    """Text -> answer, of those that the table answers, while no Model replica runs."""
    frozen = service.replicas("Model")
    assert frozen
    answers = {}
    for pid in frozen:
        os.kill(pid, signal.SIGSTOP)
    try:
        for row in rows:
            status, raw = service.post("/v1/systemone", ask_about("mail", row.text))
            if status == 200:
                (answers[row.text],) = json.loads(raw)["answers"].values()
    finally:
        for pid in frozen:
            os.kill(pid, signal.SIGCONT)
    return answers


def fitted(record):
    """The record without what its requests count: the watch goes on, and a fit is a host's own."""
    versions = [{**version, "watch": None} for version in record["versions"]]
    return {**record, "fit": None, "versions": versions}


def test_a_task_answers_without_a_model_and_after_a_restart_with_the_same_version_and_bytes(
    host, tmp_path_factory
):
    host.stop()
    folder, port = tmp_path_factory.mktemp("tasks"), free_port()
    settings = folder / "settings.yaml"
    settings.write_text(
        yaml.safe_dump(settings_for(folder, port, {"deadline_s": 1.5, "coalescer": {"max_wait_s": 1.0}}))
    )
    rows = UNSEEN[:20]
    right = {row.text: row.label for row in UNSEEN}
    with one_cluster():
        service = start(settings, port)
        try:
            record = teach(service.url)
            before = table_answers(service, rows)
            # Nothing stored answers after the restart: the table itself must.
            assert service.send("DELETE", "/v1/cache?all=true")[0] == 200
        finally:
            service.stop()
        service = start(settings, port)
        try:
            status, raw = service.send("GET", "/v1/tasks/mail")
            after = table_answers(service, rows)
        finally:
            service.stop()

    assert (record["status"]["state"], status) == ("active", 200)
    assert fitted(json.loads(raw)) == fitted(record)
    assert len(before) >= len(rows) / 2
    assert all(answer["certified"] and answer["answered_by"] == "table" for answer in before.values())
    assert sum(answer["choice"] == right[text] for text, answer in before.items()) >= 0.8 * len(before)
    assert after == before


def test_a_fit_whose_process_is_killed_leaves_the_task_as_it_was_and_says_so(service):
    record = teach(service.url)
    examples = [
        {"request": {"state": row.text, "questions": {"answer": QUESTION}}, "answer": row.label}
        for row in LEARN
    ]
    body = json.dumps({"id": "mail", "examples": examples, "fast_table": {"kind": "auto"}}).encode()

    with ThreadPoolExecutor(1) as pool:
        again = pool.submit(service.post, "/v1/tasks?replace=1", body)
        os.kill(fitting(service), signal.SIGKILL)
        status, raw = again.result()

    shown = json.loads(service.send("GET", "/v1/tasks/mail")[1])
    answers = table_answers(service, UNSEEN[:5])
    assert (status, json.loads(raw)["detail"]["error_type"]) == (503, "upstream_error")
    assert shown["fit"]["state"] == "failed"
    assert (shown["status"], shown["table"]) == (record["status"], record["table"])
    assert answers


def fitting(service):
    """The process that learns, once it does."""
    until = time.monotonic() + 30
    while time.monotonic() < until:
        for pid in descendants(service.process.pid):
            with suppress(OSError):
                if Path(f"/proc/{pid}/cmdline").read_text().startswith("ray::teach"):
                    return pid
        time.sleep(0.01)
    raise AssertionError("no process learned")


def test_a_removed_task_is_gone_and_a_request_that_names_it_says_so(service):
    teach(service.url)
    with closing(Client(service.url)) as client:
        remove(client, "mail")

    status, raw = service.post("/v1/systemone", ask_about("mail", "my card has not arrived"))

    assert status == 404
    assert "mail" in json.dumps(json.loads(raw))
    assert service.send("GET", "/v1/tasks/mail")[0] == 404


def test_the_demonstration_shows_a_table_that_answers_most_texts(service, capsys, monkeypatch):
    monkeypatch.setattr(demo_table, "read", lambda: ROWS)

    assert demo_table.main(["--url", service.url]) == 0

    printed = capsys.readouterr().out
    assert f"registering demo-support-routing with {len(LEARN)} examples of 8 intents" in printed
    assert "at most 0.05 of the answers" in printed
    assert "200 unseen texts" in printed
    assert json.loads(service.send("GET", "/v1/tasks")[1])["tasks"] == []


def test_the_latency_check_compares_both_tasks_and_leaves_neither(service, tmp_path, capsys):
    for name, rows in (("train", LEARN), ("probe", UNSEEN[:40])):
        lines = [json.dumps({"text": row.text, "label": row.label}) for row in rows]
        (tmp_path / f"{name}.jsonl").write_text("\n".join(lines))
    given = ["--url", service.url, "--examples", str(tmp_path / "train.jsonl")]
    given += ["--probe", str(tmp_path / "probe.jsonl"), "--out", str(tmp_path / "out.json")]

    assert table_latency.main(given) == 0

    measured = json.loads((tmp_path / "out.json").read_text())
    assert [run["concurrency"] for run in measured["runs"]] == [1, 8, 32]
    for run in measured["runs"]:
        assert sum(band["probes"] for band in run["bands"]) == 40
        assert any(band["by_table"] > 0 for band in run["bands"])
        for band in run["bands"]:
            assert band["with_table"].keys() == band["model_only"].keys() == {"p50_ms", "p95_ms", "mean_ms"}
    assert "model only" in capsys.readouterr().out
    assert json.loads(service.send("GET", "/v1/tasks")[1])["tasks"] == []


def test_a_score_task_is_certified_to_the_level_or_to_its_neighbours(service):
    levels = ["calm", "annoyed", "furious"]
    openers = ("Thank you, all is well with", "I am a bit annoyed about", "I am furious, fix at once")
    things = ("my card", "the refund", "your app", "the fee", "the transfer", "my account", "the letter")
    places = ("in town", "abroad", "at home", "online", "at the branch", "by phone", "at the shop", "today")
    question = {"type": "score", "instructions": "How angry is the writer?", "criteria": levels}
    examples = [
        {
            "request": {"state": f"{opener} {thing} {place}", "questions": {"anger": question}},
            "answer": level,
        }
        for level, opener in enumerate(openers)
        for thing in things
        for place in places
    ]
    for level_error in (0, 1):
        body = {"id": "anger", "examples": examples, "certify": {"level_error": level_error}}
        status, raw = service.post("/v1/tasks?replace=1", json.dumps(body).encode())
        record = json.loads(raw)
        assert (status, record["status"]["state"]) == (200, "active"), record
        assert record["certificate"]["level_error"] == level_error

    status, raw = service.post(
        "/v1/systemone", ask_about("anger", "I am furious, fix at once the letter again")
    )

    (answer,) = json.loads(raw)["answers"].values()
    assert (status, answer["answered_by"], answer["certified"]) == (200, "table", True)
    assert round(answer["score"]) == 2
    assert service.send("DELETE", "/v1/tasks/anger")[0] == 200
