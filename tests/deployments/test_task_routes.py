"""`/v1/tasks`: register, look, certify anew, move and remove; what is refused, and what a refusal leaves."""

import asyncio
import json
import logging

import pytest

from core.errors import FitFailed, SettingsError, StoreUnavailable
from core.tasks.stores.memory import MemoryTaskStore
from deployments.auth import Keys
from tests.deployments.school import MAX_BYTES, QUESTION, TOPICS, School, labelled, registration
from tests.deployments.test_auth import entry, write_keys
from tests.toy_language import texts_about

STATE = texts_about(0, 1, seed=9)[0]


@pytest.fixture
def school(tmp_path):
    return School(tmp_path / "tables")


async def answered_by(school, **members):
    reply = await school.ask(STATE, **members)
    return reply.json["answers"]["topic"]["answered_by"]


class Down(MemoryTaskStore):
    """A store that can be stopped."""

    up = True

    async def get(self, *given):
        return await self._unless_down(super().get(*given))

    async def put(self, *given):
        return await self._unless_down(super().put(*given))

    async def put_object(self, *given):
        return await self._unless_down(super().put_object(*given))

    async def _unless_down(self, doing):
        if self.up:
            return await doing
        doing.close()
        raise StoreUnavailable("put", "it is down")


class TestRegistering:
    async def test_answers_with_certificate_report_and_state(self, school):
        reply = await school.register()

        shown = reply.json
        assert reply.status == 200
        assert (shown["id"], shown["type"], shown["options"]) == (
            "mail",
            "choice",
            ["card", "refund", "address"],
        )
        assert shown["n_examples"] == 240
        assert sum(shown["per_option"].values()) == 120
        assert shown["certificate"]["certified"] is True
        assert shown["certificate"]["n"] == 120
        assert shown["table"] == {"version": 1, "kind": "static"}
        assert shown["status"]["state"] == "active"
        assert shown["fast_table_report"]["kept"] is True
        assert shown["fast_table_report"]["kinds"]["static"]["timing"]["mean_s"] > 0
        assert shown["fast_table_report"]["guard"]["engine"]["mean_at_8_s"] > 0
        assert shown["store_version"] == 1

    async def test_has_the_table_answer_from_then_on_and_the_answer_says_so(self, school):
        await school.register()
        certificate = (await school.show())["certificate"]

        reply = await school.ask(STATE)

        answer = reply.json["answers"]["topic"]
        assert answer["choice"] == "card"
        assert answer["answered_by"] == "table"
        assert (answer["certified"], answer["certificate_kind"]) == (True, "gold")
        assert answer["certificate"] == certificate["id"]
        assert answer["confidence"] >= certificate["threshold"]
        assert reply.json["x_precedent"]["source"] == "table"

    async def test_leaves_what_the_table_may_not_answer_to_the_engine_with_the_reason(self, school):
        await school.register()

        answer = await school.ask("xylophone quartz")

        assert answer.json["answers"]["topic"]["answered_by"] == "model"
        assert answer.json["answers"]["topic"]["certified_reason"] == "too_little_known"

    async def test_a_long_fit_answers_at_once_with_where_to_look(self, tmp_path):
        school = School(tmp_path, wait_s=0.05)
        school.gate = asyncio.Event()

        reply = await school.register()
        before = await school.show()
        school.gate.set()
        while (await school.show())["status"]["state"] != "active":
            await asyncio.sleep(0.01)

        assert reply.status == 202
        assert reply.header(b"location") == b"/v1/tasks/mail"
        assert reply.json["status"]["state"] == "learning"
        assert before["fit"] == {"state": "learning", "progress": 0.5}
        assert "fit" not in await school.show()
        assert await answered_by(school) == "table"

    async def test_the_engine_answers_and_the_old_table_goes_on_while_a_new_one_is_fitted(self, tmp_path):
        school = School(tmp_path, wait_s=0.05)
        school.gate = asyncio.Event()
        await school.register()

        first = await school.ask(STATE)
        school.gate.set()
        await settled(school)
        school.gate = asyncio.Event()
        await school.register()
        during, shown = await school.ask(f"{STATE} please"), await school.show()
        school.gate.set()
        await settled(school)

        assert "answered_by" not in first.json["answers"]["topic"]
        assert during.json["answers"]["topic"]["answered_by"] == "table"
        assert shown["status"]["state"] == "active"
        assert shown["fit"]["state"] == "learning"

    async def test_without_a_table_or_a_certificate_keeps_question_and_context_alone(self, school):
        for off in ({"fast_table": False}, {"certify": False}):
            shown = (await school.register(**off)).json
            assert shown["status"]["state"] == "off"
            assert "certificate" not in shown
        assert not school.taught

    async def test_the_same_examples_again_make_the_same_table_under_a_new_version(self, school):
        first = (await school.register()).json
        second = (await school.register()).json

        assert (first["table"]["version"], second["table"]["version"]) == (1, 2)
        assert second["store_version"] == 2
        assert second["certificate"]["delta"] < first["certificate"]["delta"]

    async def test_what_certifies_nothing_is_kept_with_the_reason(self, school):
        wrong = [one | {"answer": "card"} for one in labelled(240)[:200]] + labelled(240)[200:]
        texts_without_sense = [
            one | {"answer": ("card", "refund", "address")[index % 3]} for index, one in enumerate(wrong)
        ]

        shown = (await school.register(examples=texts_without_sense)).json

        assert shown["certificate"]["certified"] is False
        assert shown["certificate"]["threshold"] is None
        assert shown["status"]["state"] == "off"
        assert shown["status"]["reason"]
        assert await answered_by(school) == "model"

    async def test_a_table_that_saves_too_little_is_not_kept(self, school):
        shown = (await school.register(fast_table={"min_saving": 0.9999})).json

        assert shown["status"]["state"] == "off"
        assert "less than the 100.0% that was asked for" in shown["fast_table_report"]["reason"]
        assert await answered_by(school) == "model"

    async def test_the_question_may_be_left_out_by_who_names_the_task(self, school):
        await school.register()
        asked = {"model": "jev-latest", "state": STATE, "task": "mail"}

        reply = await school.send("POST", "/v1/systemone", asked)

        assert reply.json["answers"]["topic"]["answered_by"] == "table"

    async def test_a_name_of_any_printable_characters_is_found_again(self, school):
        await school.register(task_id="Größe, 50%")

        assert (await school.show("Größe, 50%"))["id"] == "Größe, 50%"


async def settled(school):
    while "fit" in await school.show():
        await asyncio.sleep(0.01)


class TestAContext:
    async def test_is_read_by_the_engine_and_not_by_the_table(self, school):
        await school.register(context="You route mail.")
        school.engine.batches.clear()

        by_table = await school.ask(STATE)
        by_engine = await school.ask("xylophone quartz")

        assert by_table.json["answers"]["topic"]["answered_by"] == "table"
        assert by_engine.json["answers"]["topic"]["answered_by"] == "model"
        assert [batch[0].state for batch in school.engine.batches] == ["You route mail.\n\nxylophone quartz"]

    async def test_is_warned_of_in_a_header_when_the_state_begins_with_it_too(self, school):
        await school.register(context="You route mail.")

        reply = await school.ask(f"You route mail. {STATE}")

        assert b"begins with the context of its task" in reply.header(b"x-precedent-warning")


class TestARefusal:
    async def test_says_how_many_more_examples_are_needed(self, school):
        reply = await school.register(n=117)

        assert reply.status == 422
        assert "58 distinct inputs are left to certify on" in reply.json["detail"][0]["msg"]
        assert reply.json["detail"][0]["loc"] == ["body", "examples"]

    @pytest.mark.parametrize(
        "body",
        [b"", b"{", b"[]", b"{}", b'"x"', b'{"id": "a", "examples": [1]}', b"\xff", b'{"id": NaN}'],
    )
    async def test_of_what_is_no_registration_is_422(self, school, body):
        reply = await school.send("POST", "/v1/tasks", body)

        assert reply.status == 422
        assert reply.json["detail"]

    async def test_leaves_the_task_that_was_there(self, school):
        first = (await school.register()).json

        refused = await school.register(n=117)
        shown = dict(await school.show())

        assert refused.status == 422
        assert shown.pop("fit")["state"] == "failed"
        assert shown == first
        assert await answered_by(school) == "table"

    async def test_that_comes_late_is_shown_at_the_task(self, tmp_path):
        school = School(tmp_path, wait_s=0.05)
        school.gate, school.ends = asyncio.Event(), FitFailed("mail", "its process went down")

        reply = await school.register()
        school.gate.set()
        while (shown := await school.show())["fit"]["state"] != "failed":
            await asyncio.sleep(0.01)

        assert reply.status == 202
        assert shown["status"]["state"] == "off"
        assert "its process went down: register it again" not in shown["status"]["reason"]
        assert "its process went down" in shown["status"]["reason"]

    async def test_is_forgotten_after_an_hour(self, school):
        await school.register(n=117)
        assert (await school.send("GET", "/v1/tasks/mail")).status == 200
        school.now += 3_600.0

        assert (await school.send("GET", "/v1/tasks/mail")).status == 404

    async def test_because_of_a_missing_model_tells_callers_no_path(self, school, caplog):
        school.ends = SettingsError("fast_table.static_model", "no vectors in /srv/secret")

        with caplog.at_level(logging.WARNING):
            reply = await school.register()
        shown = await school.show()

        assert reply.status == 500
        assert b"secret" not in reply.body + json.dumps(shown).encode()
        assert "/srv/secret" in caplog.text

    async def test_of_too_many_bytes_or_examples_says_both_numbers(self, tmp_path):
        school = School(tmp_path, max_examples=10)

        assert "and 10 are allowed" in (await school.register(n=30)).json["detail"][0]["msg"]
        assert (await school.send("POST", "/v1/tasks", b" " * (MAX_BYTES + 1))).status == 413

    @pytest.mark.parametrize(
        ("method", "path"),
        [("GET", "/v1/tasks/none"), ("DELETE", "/v1/tasks/none"), ("POST", "/v1/tasks/none/certify")],
    )
    async def test_of_a_task_that_is_not_there_is_404_and_names_it(self, school, method, path):
        reply = await school.send(method, path, {"examples": labelled()})

        assert reply.status == 404
        assert "'none'" in reply.json["detail"]["message"]


class TestTwoWriters:
    async def test_of_one_version_the_second_is_refused_with_both_versions(self, school):
        await school.register()
        await school.register()

        reply = await school.register((b"x-precedent-replaces", b"1"))

        assert reply.status == 409
        assert reply.json["detail"]["kind"] == "version_conflict"
        assert (reply.json["detail"]["store_version"], reply.json["detail"]["your_version"]) == (2, 1)

    async def test_who_has_seen_the_newest_may_replace_it(self, school):
        await school.register()

        assert (await school.register((b"x-precedent-replaces", b"1"))).status == 200
        assert (await school.register((b"x-decisio-replaces", b"2"))).status == 200

    @pytest.mark.parametrize("value", [b"x", b"-1", b"1.5", b""])
    async def test_a_version_that_is_none_is_refused(self, school, value):
        assert (await school.register((b"x-precedent-replaces", value))).status == 400

    async def test_on_two_routers_the_one_that_has_not_seen_the_other_is_refused(self, tmp_path):
        one = School(tmp_path / "one")
        other = School(tmp_path / "other", store=one.store)
        await one.register()

        blind = await other.register()
        unseen = await other.send("POST", "/v1/tasks?replace=1", registration())
        await one.sync.refresh()

        assert blind.status == 409
        assert unseen.status == 200
        assert (await one.show())["store_version"] == 2

    async def test_one_fit_of_a_task_at_a_time_wherever_it_runs(self, tmp_path):
        one = School(tmp_path / "one", wait_s=0.01)
        other = School(tmp_path / "other", store=one.store, wait_s=0.01)
        one.gate = asyncio.Event()
        await one.register()
        await other.sync.refresh()

        here, there = await one.register(), await other.register()
        one.gate.set()
        await settled(one)

        for reply in (here, there):
            assert reply.status == 409
            assert "is being fitted" in reply.json["detail"]["message"]

    async def test_of_which_the_quicker_wins_and_the_slower_is_told(self, tmp_path):
        one = School(tmp_path / "one", wait_s=0.01)
        one.gate = asyncio.Event()
        await one.register()
        other = School(tmp_path / "other", store=one.store)
        await other.register()  # has heard of nothing yet

        one.gate.set()
        while (shown := await one.show()).get("fit", {}).get("state") != "failed":
            await asyncio.sleep(0.01)

        await one.sync.refresh()

        assert "has version 1" in shown["fit"]["error"]
        assert (await one.show())["store_version"] == 1

    async def test_so_many_fits_at_a_time_and_no_more(self, tmp_path):
        school = School(tmp_path, wait_s=0.01, max_fits=1)
        school.gate = asyncio.Event()
        await school.register()

        reply = await school.register(task_id="other")
        school.gate.set()
        await settled(school)

        assert reply.status == 429
        assert reply.header(b"retry-after") == b"5"
        assert (await school.register(task_id="other")).status in (200, 202)
        await school.teaching.drain()


class TestRemoving:
    async def test_leaves_the_question_to_the_engine(self, school):
        await school.register()

        removed = await school.send("DELETE", "/v1/tasks/mail")

        assert removed.json == {"removed": "mail"}
        assert (await school.send("GET", "/v1/tasks/mail")).status == 404
        assert "answered_by" not in (await school.ask(STATE)).json["answers"]["topic"]
        assert (await school.send("DELETE", "/v1/tasks/mail")).status == 404

    async def test_of_another_version_is_refused(self, school):
        await school.register()

        reply = await school.send("DELETE", "/v1/tasks/mail", None, (b"x-precedent-replaces", b"7"))

        assert reply.status == 409
        assert await answered_by(school) == "table"

    async def test_is_seen_by_another_router(self, tmp_path):
        one = School(tmp_path / "one")
        other = School(tmp_path / "other", store=one.store)
        await one.register()
        await other.sync.refresh()
        assert await answered_by(other) == "table"

        await one.send("DELETE", "/v1/tasks/mail")
        await other.sync.refresh()

        assert (await other.send("GET", "/v1/tasks/mail")).status == 404

    async def test_and_registering_again_counts_on(self, school):
        await school.register()
        await school.send("DELETE", "/v1/tasks/mail")

        assert (await school.register()).json["store_version"] == 3


class TestCertifyingAnew:
    async def test_keeps_the_table_and_gives_its_promise_a_new_version(self, school):
        first = (await school.register()).json
        body = {"examples": labelled(300, seed=5), "alpha": 0.1}

        shown = (await school.send("POST", "/v1/tasks/mail/certify", body)).json

        assert shown["certificate"]["id"] != first["certificate"]["id"]
        assert (shown["certificate"]["alpha"], shown["certify"]["alpha"]) == (0.1, 0.1)
        assert shown["table"] == {"version": 2, "kind": "static"}
        assert shown["looks"] == 2
        assert await answered_by(school) == "table"

    async def test_on_the_examples_of_the_fit_is_refused_and_changes_nothing(self, school):
        first = (await school.register()).json

        reply = await school.send("POST", "/v1/tasks/mail/certify", {"examples": labelled(240)})
        shown = dict(await school.show())
        shown.pop("fit")

        assert reply.status == 422
        assert "fitted on" in reply.json["detail"][0]["msg"]
        assert shown == first

    async def test_of_a_task_without_certification_is_refused(self, school):
        await school.register(certify=False)

        reply = await school.send("POST", "/v1/tasks/mail/certify", {"examples": labelled()})

        assert reply.status == 422
        assert "without certification" in reply.json["detail"][0]["msg"]

    async def test_that_proves_nothing_turns_the_table_off(self, school):
        await school.register()
        fresh = labelled(300, seed=5)
        wrong = [one | {"answer": "card"} for one in fresh]

        shown = (await school.send("POST", "/v1/tasks/mail/certify", {"examples": wrong})).json

        assert shown["status"]["state"] == "off"
        assert await answered_by(school) == "model"


class TestMoving:
    async def test_a_task_serves_elsewhere_with_the_same_bytes(self, tmp_path):
        here, there = School(tmp_path / "here"), School(tmp_path / "there")
        first = (await here.register()).json
        exported = (await here.send("GET", "/v1/tasks?full=1")).json

        loaded = await there.send("POST", "/v1/tasks/import", exported)

        assert loaded.json == {"loaded": ["mail"]}
        one, other = await here.ask(STATE), await there.ask(STATE)
        assert one.json["answers"] == other.json["answers"]
        assert other.json["answers"]["topic"]["answered_by"] == "table"
        assert (await there.show())["certificate"] == first["certificate"]
        assert (await there.send("GET", "/v1/tasks?full=1")).json["tasks"][0]["objects"] == (
            exported["tasks"][0]["objects"]
        )

    async def test_onto_a_task_that_is_there_needs_its_version(self, tmp_path):
        school = School(tmp_path)
        await school.register()
        exported = (await school.send("GET", "/v1/tasks?full=1")).json

        stale = await school.send("POST", "/v1/tasks/import", exported, (b"x-precedent-replaces", b"0"))
        fresh = await school.send("POST", "/v1/tasks/import", exported)

        assert (stale.status, fresh.status) == (409, 200)

    async def test_of_something_else_is_refused_whole(self, school):
        await school.register()
        exported = (await school.send("GET", "/v1/tasks?full=1")).json
        exported["tasks"].append(exported["tasks"][0] | {"id": "other", "objects": {}})
        await school.send("DELETE", "/v1/tasks/mail")

        reply = await school.send("POST", "/v1/tasks/import", exported)

        assert reply.status == 422
        assert reply.json["detail"][0]["loc"] == ["body", "tasks", 1]
        assert (await school.send("GET", "/v1/tasks")).json["tasks"] == []

    async def test_the_list_says_which_engine_it_is(self, school):
        await school.register()

        listed = (await school.send("GET", "/v1/tasks")).json

        assert listed["fingerprint"] == "fake-0"
        assert listed["read_only"] is False
        assert [one["id"] for one in listed["tasks"]] == ["mail"]
        assert listed["tasks"][0] == await school.show()


WRITES = (
    ("POST", "/v1/tasks"),
    ("POST", "/v1/tasks/import"),
    ("POST", "/v1/tasks/mail/certify"),
    ("DELETE", "/v1/tasks/mail"),
)


class TestAReadOnlyServer:
    @pytest.mark.parametrize(("method", "path"), WRITES)
    async def test_writes_nothing_and_says_so(self, tmp_path, method, path):
        writer = School(tmp_path / "writer")
        reader = School(tmp_path / "reader", store=writer.store, read_only=True)
        await writer.register()
        await reader.sync.refresh()

        reply = await reader.send(method, path, registration())

        assert reply.status == 409
        assert "tasks.read_only" in reply.json["detail"]["message"]
        assert await answered_by(reader) == "table"
        assert (await reader.send("GET", "/v1/tasks")).json["read_only"] is True


class TestAStoreThatIsDown:
    async def test_is_503_and_nothing_is_made_while_tables_go_on(self, tmp_path):
        store = Down()
        school = School(tmp_path, store=store)
        await school.register()
        before = await school.show()
        store.up = False

        written = [
            await school.register(),
            await school.send("DELETE", "/v1/tasks/mail"),
            await school.send("POST", "/v1/tasks/mail/certify", {"examples": labelled(300, seed=5)}),
        ]

        assert [reply.status for reply in written] == [503] * 3
        assert await school.show() == before
        assert await answered_by(school) == "table"

    async def test_that_goes_down_during_the_fit_leaves_the_old_task(self, tmp_path):
        store = Down()
        school = School(tmp_path, store=store, wait_s=0.01)
        await School(tmp_path, store=store).register()
        await school.sync.refresh()
        before = await school.show()
        school.gate = asyncio.Event()
        await school.register()
        store.up = False
        school.gate.set()
        while (shown := dict(await school.show()))["fit"]["state"] != "failed":
            await asyncio.sleep(0.01)

        assert "it is down" in shown.pop("fit")["error"]
        assert shown == before

        store.up = True
        assert (await school.register()).status in (200, 202)
        await school.teaching.drain()


class TestKeys:
    @pytest.fixture
    def people(self, tmp_path):
        self.keys = {}
        entries = []
        for name, tenant, scopes in (
            ("ada", "acme", ("decide", "read", "teach")),
            ("rob", "acme", ("decide",)),
            ("eve", "acme", ("read",)),
            ("gil", "globex", ("decide", "read", "teach")),
        ):
            self.keys[name], one = entry(tenant, *scopes)
            entries.append(one)
        return School(tmp_path / "tables", callers=Keys(write_keys(tmp_path / "keys.yaml", *entries)))

    def key(self, name):
        return (b"authorization", b"Bearer " + self.keys[name].encode())

    @pytest.mark.parametrize(("method", "path"), WRITES)
    async def test_without_the_scope_nobody_writes(self, people, method, path):
        await people.register(self.key("ada"))

        refused = [
            await people.send(method, path, registration(), self.key("rob")),
            await people.send(method, path, registration(), self.key("eve")),
            await people.send(method, path, registration()),
        ]

        assert [reply.status for reply in refused] == [403, 403, 401]

    async def test_who_may_not_read_sees_no_task(self, people):
        assert (await people.send("GET", "/v1/tasks", None, self.key("rob"))).status == 403
        assert (await people.send("GET", "/v1/tasks/mail", None, self.key("rob"))).status == 403

    async def test_a_tenant_has_its_own_tasks_and_no_others(self, people):
        await people.register(self.key("ada"))

        theirs = [
            await people.send("GET", "/v1/tasks/mail", None, self.key("gil")),
            await people.send("DELETE", "/v1/tasks/mail", None, self.key("gil")),
            await people.ask(STATE, self.key("gil"), task="mail"),
        ]
        by_question = await people.ask(STATE, self.key("gil"))
        own = await people.ask(STATE, self.key("rob"))

        assert [reply.status for reply in theirs] == [404, 404, 404]
        assert (await people.send("GET", "/v1/tasks?full=1", None, self.key("gil"))).json["tasks"] == []
        assert "answered_by" not in by_question.json["answers"]["topic"]
        assert own.json["answers"]["topic"]["answered_by"] == "table"

    async def test_a_write_is_in_the_log_with_who_what_and_when(self, people, caplog):
        with caplog.at_level(logging.WARNING, "ray.serve.precedent.audit"):
            await people.register(self.key("ada"))

        (line,) = [each.getMessage() for each in caplog.records if "register" in each.getMessage()]
        assert "'mail'" in line
        assert "at 1000.000" in line
        assert self.keys["ada"] not in line


async def test_a_batch_may_name_tasks_item_by_item(school):
    await school.register()
    items = [
        {"model": "jev-latest", "state": STATE, "task": "mail"},
        {
            "model": "jev-latest",
            "state": STATE,
            "questions": {"other": {"type": "noul", "instructions": "?"}},
        },
        {"model": "jev-latest", "state": STATE, "task": "none"},
    ]

    reply = await school.send("POST", "/v1/systemone/batch", {"requests": items})

    named, other, unknown = reply.json["results"]
    assert named["answers"]["topic"]["answered_by"] == "table"
    assert "answered_by" not in other["answers"]["other"]
    assert unknown["error"]["status"] == 404


async def test_a_question_in_another_spelling_is_the_same_and_with_other_options_is_not(school):
    await school.register()
    spelt = dict(reversed(QUESTION.items()))
    reordered = QUESTION | {"criteria": dict.fromkeys(reversed(TOPICS))}

    same = await school.ask(STATE, questions={"x": spelt})
    other = await school.ask(STATE, questions={"x": reordered})

    assert same.json["answers"]["x"]["answered_by"] == "table"
    assert "answered_by" not in other.json["answers"]["x"]
