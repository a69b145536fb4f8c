"""`/v1/cache`: reports and purges, each within its tenant."""

import asyncio
import json
import logging

import pytest

from core.engines.fake import FakeEngine
from deployments.auth import Keys
from tests.deployments.asgi import JSON_HEADERS, call
from tests.deployments.serving import Serving
from tests.deployments.test_auth import entry, write_keys

BODY = json.dumps(
    {
        "model": "jev-latest",
        "state": "I was charged twice.",
        "questions": {"refund": {"type": "noul", "instructions": "Is a refund due?"}},
    }
).encode()
ALL = b"all=true"


class People:
    """A service with keys, and who holds them."""

    def __init__(self, tmp_path, engine):
        self.keys = {}
        entries = []
        for name, tenant, scopes in (
            ("ada", "acme", ("decide", "read", "purge")),
            ("rob", "acme", ("decide", "read")),
            ("gil", "globex", ("decide", "read", "purge")),
        ):
            self.keys[name], one = entry(tenant, *scopes)
            entries.append(one)
        self.app = Serving(engine=engine, callers=Keys(write_keys(tmp_path / "keys.yaml", *entries))).app()

    def headers(self, name, *more):
        return [*JSON_HEADERS, (b"authorization", b"Bearer " + self.keys[name].encode()), *more]

    async def ask(self, name, *more):
        return await call(self.app, BODY, headers=self.headers(name, *more))

    async def purge(self, name, query):
        return await call(
            self.app, method="DELETE", path="/v1/cache", query=query, headers=self.headers(name)
        )

    async def report(self, name):
        return (await call(self.app, method="GET", path="/v1/cache", headers=self.headers(name))).json


@pytest.fixture
def engine():
    return FakeEngine()


@pytest.fixture
def people(tmp_path, engine):
    return People(tmp_path, engine)


def source(reply):
    return reply.json["x_precedent"]["source"]


class TestTenants:
    async def test_two_tenants_share_no_decision(self, people, engine):
        one, other = await people.ask("ada"), await people.ask("gil")

        assert (source(one), source(other)) == ("model", "model")
        assert one.json["x_precedent"]["key"] != other.json["x_precedent"]["key"]
        assert other.header(b"cache-status") == b"precedent; fwd=miss; stored"
        assert engine.runs == 2

    async def test_two_keys_of_one_tenant_share_its_decisions(self, people):
        await people.ask("ada")

        assert source(await people.ask("rob")) == "replay"

    async def test_two_tenants_share_no_flight(self, tmp_path):
        gate = asyncio.Event()
        engine = FakeEngine(gate=gate)
        people = People(tmp_path, engine)
        asked = [asyncio.create_task(people.ask(name)) for name in ("ada", "rob", "gil")]
        while engine.runs < 2:
            await asyncio.sleep(0)

        gate.set()
        ada, rob, gil = await asyncio.gather(*asked)

        assert [source(reply) for reply in (ada, rob, gil)] == ["model", "coalesced", "model"]

    async def test_the_engine_is_told_to_share_no_work_between_tenants(self, people, engine):
        await people.ask("ada")
        await people.ask("gil")

        assert [batch[0].isolation for batch in engine.batches] == ["acme", "globex"]

    @pytest.mark.parametrize("header", [b"x-tenant", b"x-forwarded-user", b"x-precedent-tenant"])
    async def test_no_header_reaches_another_tenant(self, people, header):
        await people.ask("ada")

        assert source(await people.ask("gil", (header, b"acme"))) == "model"

    @pytest.mark.parametrize("path", ["/v1/systemone", "/v1/models", "/v1/cache"])
    async def test_every_route_of_value_asks_for_a_key(self, people, path):
        method = "POST" if path == "/v1/systemone" else "GET"

        nobody = await call(people.app, BODY, method=method, path=path)
        stranger = await call(
            people.app,
            BODY,
            method=method,
            path=path,
            headers=[*JSON_HEADERS, (b"authorization", b"Bearer no")],
        )

        for reply in (nobody, stranger):
            assert reply.status == 401
            assert reply.json["detail"]["error_type"] == "authentication_error"


class TestPurging:
    async def test_what_was_purged_is_decided_again(self, people):
        await people.ask("ada")

        purged = await people.purge("ada", ALL)

        assert purged.status == 200
        assert purged.json["fenced"] == {"tenant": "acme"}
        assert source(await people.ask("ada")) == "model"

    async def test_everything_of_a_tenant_leaves_other_tenants_alone(self, people):
        await people.ask("gil")

        await people.purge("ada", ALL)

        assert source(await people.ask("gil")) == "replay"

    async def test_a_filter_purges_what_it_names(self, people):
        old, new = (b"x-precedent-evidence-revision", b"1"), (b"x-precedent-evidence-revision", b"2")
        await people.ask("ada", old)
        await people.ask("ada", new)

        await people.purge("ada", b"evidence=1")

        assert source(await people.ask("ada", old)) == "model"
        assert source(await people.ask("ada", new)) == "replay"

    async def test_an_answer_that_was_under_way_is_not_replayed_after_the_purge(self, tmp_path):
        gate = asyncio.Event()
        engine = FakeEngine(gate=gate)
        people = People(tmp_path, engine)
        under_way = asyncio.create_task(people.ask("ada"))
        while not engine.runs:
            await asyncio.sleep(0)

        await people.purge("ada", ALL)
        gate.set()

        assert (await under_way).status == 200
        assert source(await people.ask("ada")) == "model"

    async def test_another_tenant_cannot_be_named(self, people):
        await people.ask("gil")

        refused = await people.purge("ada", b"tenant=globex")

        assert refused.status == 403
        assert source(await people.ask("gil")) == "replay"

    async def test_a_key_without_the_scope_purges_nothing(self, people):
        await people.ask("rob")

        refused = await people.purge("rob", ALL)

        assert refused.status == 403
        assert "purge" in refused.json["detail"]["message"]
        assert source(await people.ask("rob")) == "replay"

    async def test_nobody_purges_without_a_key(self, people):
        reply = await call(people.app, method="DELETE", path="/v1/cache", query=ALL, headers=[])

        assert reply.status == 401

    @pytest.mark.parametrize(
        "query",
        [
            b"",
            b"all=false",
            b"all=",
            b"everything=true",
            b"evidence=",
            b"evidence=1&evidence=2",
            b"all=true&evidence=1",
        ],
    )
    async def test_a_purge_that_does_not_say_what_is_refused(self, people, query):
        await people.ask("ada")

        refused = await people.purge("ada", query)

        assert refused.status == 422
        assert source(await people.ask("ada")) == "replay"

    async def test_a_purge_is_in_the_log_with_who_what_and_when(self, people, caplog):
        caplog.set_level(logging.INFO)

        await people.purge("ada", b"evidence=1")

        (line,) = (record.getMessage() for record in caplog.records if "audit" in record.name)
        assert "purge by key " in line
        assert "'evidence': '1'" in line
        assert "1000.000" in line
        assert people.keys["ada"] not in line

    async def test_without_keys_everything_is_everything(self, engine):
        app = Serving(engine=engine).app()
        await call(app, BODY)

        purged = await call(app, method="DELETE", path="/v1/cache", query=ALL)

        assert purged.json["fenced"] == {"all": True}
        assert source(await call(app, BODY)) == "model"


class TestReports:
    async def test_a_tenant_sees_its_own_numbers(self, people):
        await people.ask("ada")
        await people.ask("ada")
        await people.ask("gil")

        report = await people.report("rob")

        assert report["tenant"] == "acme"
        assert (report["hits"], report["misses"], report["added"]) == (1, 1, 1)
        assert report["store"]["reading"] == "closed"

    async def test_a_tenant_sees_nobody_elses_volume(self, people):
        assert not {"entries", "in_flight"} & (await people.report("rob")).keys()

    async def test_without_keys_all_numbers_are_shown(self, engine):
        app = Serving(engine=engine).app()
        await call(app, BODY)

        report = (await call(app, method="GET", path="/v1/cache")).json

        assert (report["entries"], report["added"]) == (1, 1)
        assert {"conflicts", "coalesced", "errors", "renewals", "evictions"} <= report.keys()

    async def test_without_keys_it_says_how_much_is_under_way(self):
        gate = asyncio.Event()
        engine = FakeEngine(gate=gate)
        app = Serving(engine=engine).app()
        asked = asyncio.create_task(call(app, BODY))
        while not engine.runs:
            await asyncio.sleep(0)

        meanwhile = (await call(app, method="GET", path="/v1/cache")).json
        gate.set()
        await asked

        assert meanwhile["in_flight"] == 1
        assert (await call(app, method="GET", path="/v1/cache")).json["in_flight"] == 0
