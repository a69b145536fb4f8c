"""What a caller sees: status, shape and headers of every reply, and that a replay repeats the first one."""

import asyncio
import gzip
import json
import logging
import re
import sys
from collections.abc import Sequence
from typing import Any

import pytest

from core.cache.stores.memory import MemoryStore
from core.engines.base import Item, Limits, Reading
from core.engines.fake import FakeEngine
from core.errors import EngineUnavailable, StoreUnavailable
from deployments import schema
from tests.deployments.asgi import JSON_HEADERS, Reply, call, exchange
from tests.deployments.serving import MAX_BYTES, MODELS, Serving
from tests.strategies import REAL_BODIES

if sys.version_info >= (3, 14):
    from compression import zstd
else:
    from backports import zstd

QUESTIONS: dict[str, Any] = {
    "refund": {"type": "noul", "instructions": "Is a refund asked for?"},
    "team 🎯": {"type": "choice", "criteria": {"환불 요청": None, "B": "billing", "": None}},
    "tone": {"type": "score", "criteria": ["calm", {"label": "angry"}, ["furious"]]},
}
BODY: dict[str, Any] = {"model": "jev-latest", "state": "I was charged twice.", "questions": QUESTIONS}


def body(**changes: Any) -> bytes:
    return json.dumps(BODY | changes, ensure_ascii=False).encode()


async def ask(serving: Serving, raw: Any = None, **how: Any) -> Reply:
    return await call(serving.app(), body() if raw is None else raw, **how)


@pytest.fixture
def serving() -> Serving:
    return Serving()


class TestAnAnswer:
    async def test_has_exactly_the_three_members_of_the_contract_and_one_of_ours(self, serving):
        reply = await ask(serving)

        assert reply.status == 200
        assert list(reply.json) == ["model", "answers", "usage", "x_precedent"]
        assert reply.json["model"] == "fake"

    async def test_stands_under_the_ids_of_the_request_with_its_types_and_options(self, serving):
        answers = (await ask(serving)).json["answers"]

        assert {name: answer["type"] for name, answer in answers.items()} == {
            name: question["type"] for name, question in QUESTIONS.items()
        }
        assert list(answers) == list(QUESTIONS)
        assert answers["refund"].keys() == {"type", "noul"}
        assert list(answers["team 🎯"]["probabilities"]) == ["환불 요청", "B", ""]
        assert answers["tone"]["legend"] == {"0": "calm", "1": {"label": "angry"}, "2": ["furious"]}

    async def test_counts_tokens_with_whole_numbers(self, serving):
        usage = (await ask(serving)).json["usage"]

        assert usage == {"input_tokens": 12, "output_tokens": 0}
        assert all(type(count) is int for count in usage.values())

    async def test_says_how_it_came_about(self, serving):
        about = (await ask(serving)).json["x_precedent"]

        assert about["source"] == "model"
        assert bytes.fromhex(about["key"]).hex() == about["key"]
        assert len(about["key"]) == 32
        assert about["margins"].keys() == QUESTIONS.keys()
        assert all(0 <= margin <= 1 for margin in about["margins"].values())

    async def test_is_utf_8_that_is_not_escaped(self, serving):
        assert '"환불 요청":'.encode() in (await ask(serving)).body

    @pytest.mark.parametrize("model", MODELS)
    async def test_every_served_name_is_answered(self, serving, model):
        assert (await ask(serving, body(model=model))).status == 200

    @pytest.mark.parametrize("count", [1, 2, 26, 27, 255])
    async def test_covers_every_option(self, serving, count):
        options = {f"o{i}": None for i in range(count)}
        reply = await ask(serving, body(questions={"q": {"type": "choice", "criteria": options}}))

        answer = reply.json["answers"]["q"]
        assert list(answer["probabilities"]) == list(options)
        assert sum(answer["probabilities"].values()) == pytest.approx(1, abs=0.001)

    @pytest.mark.parametrize("authorization", [b"Bearer jevcompat-no-key", b"Basic eDp5", b"\xff\xfe", b""])
    async def test_does_not_depend_on_credentials_where_none_are_needed(self, serving, authorization):
        headers = (*JSON_HEADERS, (b"authorization", authorization))

        assert (await ask(serving, headers=headers)).status == 200


class TestAReplay:
    async def test_repeats_the_first_reply_byte_for_byte_but_for_what_belongs_to_the_call(self, serving):
        app = serving.app()

        first, again = await call(app, body()), await call(app, body())

        assert serving.engine.runs == 1
        until_usage = first.body.index(b',"usage":')
        assert again.body[:until_usage] == first.body[:until_usage]
        assert first.json["answers"] == again.json["answers"]
        assert again.json["usage"] == {"input_tokens": 0, "output_tokens": 0}
        assert again.json["x_precedent"]["source"] == "replay"
        assert again.json["x_precedent"]["key"] == first.json["x_precedent"]["key"]
        assert again.json["x_precedent"]["margins"] == first.json["x_precedent"]["margins"]

    async def test_comes_from_the_store_after_a_restart_and_is_the_same(self, serving):
        first, again, once_more = (
            (await ask(serving)).json,
            (await ask(serving)).json,
            (await ask(serving)).json,
        )

        assert serving.engine.runs == 1
        assert first["answers"] == again["answers"] == once_more["answers"]
        assert [r["x_precedent"]["source"] for r in (first, again, once_more)] == [
            "model",
            "replay",
            "replay",
        ]

    async def test_says_how_old_the_decision_is(self):
        now = 1_000.0
        serving = Serving(clock=lambda: now)
        app = serving.app()
        first = await call(app, body())
        now = 1_012.5

        again = await call(app, body())

        assert (first.json["x_precedent"]["age_s"], again.json["x_precedent"]["age_s"]) == (0.0, 12.5)

    @pytest.mark.parametrize(
        "other",
        [
            json.dumps(BODY).encode(),
            json.dumps(BODY, indent=2, ensure_ascii=False).encode(),
            json.dumps(BODY, separators=(",", ":"), ensure_ascii=False).encode(),
            body(x_trace_id="call 2"),
        ],
        ids=["escaped", "indented", "compact", "traced"],
    )
    async def test_answers_every_spelling_of_the_request(self, serving, other):
        app = serving.app()

        sources = []
        for raw in (body(), other, other):
            reply = await call(app, raw)
            sources.append(reply.json["x_precedent"]["source"])

        assert sources == ["model", "replay", "replay"]

    async def test_is_the_same_however_the_body_travelled(self, serving):
        app = serving.app()
        ways: list[tuple[Any, tuple[tuple[bytes, bytes], ...]]] = [
            (body(), JSON_HEADERS),
            ([body()[:7], b"", body()[7:]], JSON_HEADERS),
            (zstd.compress(body()), (*JSON_HEADERS, (b"content-encoding", b"zstd"))),
            (gzip.compress(body()), (*JSON_HEADERS, (b"content-encoding", b" GZIP "))),
        ]

        replies = [await call(app, raw, headers=headers) for raw, headers in ways]

        answers = {reply.body.split(b',"usage"')[0] for reply in replies}
        assert (len(answers), serving.engine.runs) == (1, 1)

    @pytest.mark.parametrize(
        "changes",
        [
            {"model": "fake"},
            {"state": "I was charged twice. "},
            {"state": ["I was charged twice."]},
            {"questions": dict(reversed(QUESTIONS.items()))},
            {
                "questions": QUESTIONS
                | {"refund": QUESTIONS["refund"] | {"instructions": None, "criteria": {"true": "x"}}}
            },
            {"x_nonce": 1},
            {"seed": 7},
        ],
        ids=["model", "state", "shape of the state", "order", "instructions", "nonce", "seed"],
    )
    async def test_is_not_given_to_another_request(self, serving, changes):
        app = serving.app()
        await call(app, body())

        reply = await call(app, body(**changes))

        assert reply.json["x_precedent"]["source"] == "model"

    async def test_of_an_answer_with_a_huge_integer_in_its_legend_is_the_same(self, serving):
        raw = body(questions={"q": {"type": "score", "criteria": [{"n": 2**64}, {"n": 2**64 + 1}]}})

        first, again = await ask(serving, raw), await ask(serving, raw)

        assert first.json["answers"]["q"]["legend"] == {"0": {"n": 2**64}, "1": {"n": 2**64 + 1}}
        assert first.json["answers"] == again.json["answers"]


class TestManyAtOnce:
    async def test_equal_requests_are_decided_once_and_answered_alike(self):
        gate = asyncio.Event()
        serving = Serving(engine=FakeEngine(gate=gate))
        app = serving.app()
        callers = [asyncio.create_task(call(app, body())) for _ in range(64)]
        while not serving.engine.runs:
            await asyncio.sleep(0)

        gate.set()
        replies = await asyncio.gather(*callers)

        assert serving.engine.runs == 1
        assert len({reply.body.split(b',"usage"')[0] for reply in replies}) == 1
        sources = [reply.json["x_precedent"]["source"] for reply in replies]
        assert (sources.count("model"), sources.count("coalesced")) == (1, 63)

    async def test_a_caller_that_is_cancelled_leaves_its_decision_to_the_next(self):
        gate = asyncio.Event()
        serving = Serving(engine=FakeEngine(gate=gate))
        app = serving.app()
        leaver = asyncio.create_task(call(app, body()))
        while not serving.engine.runs:
            await asyncio.sleep(0)
        leaver.cancel()
        await asyncio.wait([leaver])

        late = asyncio.create_task(call(app, body()))
        await asyncio.sleep(0)
        gate.set()

        reply = await late
        assert (reply.status, serving.engine.runs) == (200, 1)


def shape_a(reply: Reply) -> list[tuple[list[Any], str]]:
    assert reply.status == 422
    found = [(problem["loc"], problem["type"]) for problem in reply.json["detail"]]
    assert found
    assert all(isinstance(problem["msg"], str) for problem in reply.json["detail"])
    return found


def shape_b(reply: Reply) -> tuple[int, str]:
    assert reply.json.keys() == {"detail"}
    assert reply.json["detail"].keys() == {"error_type", "message"}
    return reply.status, reply.json["detail"]["error_type"]


NOUL = QUESTIONS["refund"]


class TestARefusal:
    @pytest.mark.parametrize(
        "raw",
        [
            b"",
            b"{",
            b'{"model":"jev-latest","questions":{',
            b"\xef\xbb\xbf{}",
            b'{"a":1,"a":2}',
            b'{"a":NaN}',
        ],
    )
    async def test_of_malformed_json_is_a_list_whose_place_begins_with_the_body(self, serving, raw):
        ((loc, kind),) = shape_a(await ask(serving, raw))

        assert (loc[0], kind) == ("body", "json_invalid")

    @pytest.mark.parametrize(
        ("changes", "loc", "kind"),
        [
            ({"state": None}, ["body", "state"], "string_type"),
            ({"state": 7}, ["body", "state"], "string_type"),
            ({"questions": {}}, ["body", "questions"], "too_short"),
            ({"questions": {"q": {"instructions": "?"}}}, ["body", "questions", "q"], "union_tag_not_found"),
            ({"questions": {"q": {"type": "boolean"}}}, ["body", "questions", "q"], "union_tag_invalid"),
            (
                {"questions": {"q": {"type": "choice", "criteria": {}}}},
                ["body", "questions", "q", "choice", "criteria"],
                "too_short",
            ),
            (
                {"questions": {"q": {"type": "choice", "criteria": {str(i): None for i in range(256)}}}},
                ["body", "questions", "q", "choice", "criteria"],
                "too_long",
            ),
            (
                {"questions": {"q": {"type": "score", "criteria": {"0": "a", "1": "b"}}}},
                ["body", "questions", "q", "score", "criteria"],
                "list_type",
            ),
            (
                {"questions": {"q": {"type": "score", "criteria": ["a", 1]}}},
                ["body", "questions", "q", "score", "criteria", 1, "str"],
                "string_type",
            ),
            (
                {"questions": {"q": {"type": "score", "criteria": ["x"] * 11}}},
                ["body", "questions", "q", "score", "criteria"],
                "too_long",
            ),
            ({"questions": {f"q{i}": NOUL for i in range(513)}}, ["body", "questions"], "too_long"),
        ],
    )
    async def test_of_a_broken_contract_names_its_place(self, serving, changes, loc, kind):
        assert shape_a(await ask(serving, body(**changes))) == [(loc, kind)]
        assert serving.engine.runs == 0

    @pytest.mark.parametrize("member", ["model", "state", "questions"])
    async def test_of_a_missing_member_names_it(self, serving, member):
        raw = json.dumps({name: value for name, value in BODY.items() if name != member}).encode()

        assert shape_a(await ask(serving, raw)) == [(["body", member], "missing")]

    @pytest.mark.parametrize("raw", [b"[]", b"null", b'"text"', b"1"])
    async def test_of_a_body_that_is_no_object(self, serving, raw):
        assert shape_a(await ask(serving, raw)) == [(["body"], "dict_type")]

    @pytest.mark.parametrize("model", ["JEV-LATEST", "nobody", ""])
    async def test_of_an_unknown_model_names_those_that_are_served(self, serving, model):
        reply = await ask(serving, body(model=model))

        assert shape_b(reply) == (400, "api_usage_error")
        assert "fake, jev-latest" in reply.json["detail"]["message"]

    @pytest.mark.parametrize("extra", [{"stream": True}, {"assets": {"a": {}}}])
    async def test_of_what_is_not_done_here(self, serving, extra):
        assert shape_b(await ask(serving, body(**extra))) == (400, "api_usage_error")

    async def test_of_too_much_text(self, serving):
        assert shape_b(await ask(serving, body(state="x" * 20_001))) == (413, "max_tokens_exceeded")

    @pytest.mark.parametrize(
        "headers",
        [
            JSON_HEADERS,
            (*JSON_HEADERS, (b"content-length", b"%d" % (MAX_BYTES + 1))),
            (*JSON_HEADERS, (b"transfer-encoding", b"chunked")),
        ],
        ids=["no length", "length", "chunked"],
    )
    async def test_of_too_many_bytes(self, serving, headers):
        assert shape_b(await ask(serving, [b"x" * MAX_BYTES, b"x"], headers=headers)) == (
            413,
            "api_usage_error",
        )

    async def test_of_a_body_that_does_not_arrive(self):
        reply = await ask(Serving(receive_s=0.01), b"{", then="hang")

        assert shape_b(reply) == (408, "api_usage_error")
        assert reply.header(b"connection") == b"close"

    async def test_is_not_even_sent_to_a_client_that_left(self, serving):
        assert await exchange(serving.app(), body()[:30], then="leave") is None
        assert serving.engine.runs == 0

    async def test_is_never_stored(self, serving):
        app = serving.app()
        for raw in (b"{", body(model="nobody"), body(questions={})):
            replies = [await call(app, raw) for _ in range(2)]
            assert (replies[0].status, replies[0].body) == (replies[1].status, replies[1].body)

        assert await serving.store.count(1_000.0) == 0


class TestTheMediaType:
    @pytest.mark.parametrize(
        "content_type",
        [
            b"application/json",
            b"application/json; charset=utf-8",
            b" Application/JSON ",
            b"application/ld+json",
        ],
    )
    async def test_json_by_any_of_its_names_is_read(self, serving, content_type):
        assert (await ask(serving, headers=[(b"content-type", content_type)])).status == 200

    async def test_no_declaration_is_taken_for_json(self, serving):
        assert (await ask(serving, headers=[])).status == 200

    @pytest.mark.parametrize(
        "content_type",
        [
            b"text/plain",
            b"text/plain; x=application/json",
            b"application/x-www-form-urlencoded",
            b"multipart/form-data; boundary=x",
            b"text/json",
            b"image/svg+json",
            b"application/jsonp",
            b"",
            b"\xff",
        ],
    )
    async def test_anything_else_is_refused_before_the_body_is_read(self, serving, content_type):
        reply = await ask(serving, headers=[(b"content-type", content_type)], then="hang")

        assert shape_b(reply) == (415, "api_usage_error")
        assert reply.header(b"accept-post") == b"application/json"

    async def test_one_wrong_declaration_among_two_is_refused(self, serving):
        headers = [(b"content-type", b"text/plain"), (b"content-type", b"application/json")]

        assert (await ask(serving, headers=headers)).status == 415


def encoded(encoding: bytes) -> tuple[tuple[bytes, bytes], ...]:
    return (*JSON_HEADERS, (b"content-encoding", encoding))


class TestTheContentEncoding:
    @pytest.mark.parametrize(
        ("encoding", "raw"),
        [
            (b"br", b"x"),
            (b"deflate", b"x"),
            (b"gzip, zstd", b"x"),
            (b"zstd", b"{}"),
            (b"zstd", zstd.compress(body())[:-3]),
            (b"gzip", gzip.compress(body()) + b"junk"),
            (b"gzip", zstd.compress(body())),
        ],
    )
    async def test_what_cannot_be_undone_is_refused_with_what_can(self, serving, encoding, raw):
        reply = await ask(serving, raw, headers=encoded(encoding))

        assert shape_b(reply) == (415, "api_usage_error")
        assert reply.header(b"accept-encoding") == b"zstd, gzip, identity"

    @pytest.mark.parametrize(("encoding", "pack"), [(b"zstd", zstd.compress), (b"gzip", gzip.compress)])
    async def test_a_bomb_is_too_large(self, serving, encoding, pack):
        assert shape_b(await ask(serving, pack(b" " * 50_000_000), headers=encoded(encoding))) == (
            413,
            "api_usage_error",
        )

    @pytest.mark.parametrize("encoding", [b"zstd", b"gzip", b"identity", b""])
    async def test_an_empty_body_is_malformed_json_under_any_encoding(self, serving, encoding):
        assert shape_a(await ask(serving, b"", headers=encoded(encoding))) == [(["body", 0], "json_invalid")]

    async def test_of_two_headers_neither_is_ignored(self, serving):
        once = gzip.compress(body())
        headers = [*JSON_HEADERS, (b"content-encoding", b"gzip"), (b"content-encoding", b"zstd")]

        assert 400 <= (await ask(serving, zstd.compress(once), headers=headers)).status < 500


class TestOtherMethodsAndPaths:
    @pytest.mark.parametrize("method", ["GET", "HEAD", "PUT", "DELETE", "PATCH", "OPTIONS"])
    async def test_another_method_on_the_decision_route_is_told_the_right_one(self, serving, method):
        reply = await ask(serving, b"", method=method)

        assert reply.status == 405
        assert reply.header(b"allow") == b"POST"

    async def test_another_method_elsewhere_is_told_the_right_one(self, serving):
        reply = await ask(serving, b"", path="/v1/models")

        assert shape_b(reply) == (405, "api_usage_error")
        assert reply.header(b"allow") == b"GET"

    @pytest.mark.parametrize("method", ["GET", "POST"])
    @pytest.mark.parametrize(
        "path", ["/nope", "/v1/systemone/", "/v1/systemone/x", "/v1//systemone", "/V1/systemone"]
    )
    async def test_an_unknown_path_is_not_found_and_never_a_redirect(self, serving, method, path):
        assert shape_b(await ask(serving, method=method, path=path)) == (404, "not_found")

    async def test_a_query_on_the_decision_route_is_ignored(self, serving):
        assert (await ask(serving, query=b"x=1&y")).status == 200

    async def test_models_lists_every_name_with_three_texts(self, serving):
        reply = await ask(serving, b"", method="GET", path="/v1/models")

        assert reply.json == {
            "models": [{"name": n, "description": "for tests", "release_date": "2025-01-31"} for n in MODELS]
        }

    async def test_health_says_that_this_process_answers(self, serving):
        reply = await ask(serving, b"", method="GET", path="/health")

        assert (reply.status, reply.json["status"]) == (200, "ok")

    @pytest.mark.parametrize(("ready", "status"), [(True, 200), (False, 503)])
    async def test_ready_says_whether_a_new_decision_can_be_made(self, ready, status):
        reply = await ask(Serving(ready={"ready": ready, "why": "x"}), b"", method="GET", path="/ready")

        assert (reply.status, reply.json) == (status, {"ready": ready, "why": "x"})


async def test_every_response_has_a_request_id_of_its_own(serving):
    app = serving.app()
    asked: list[dict[str, Any]] = [
        {"body": body()},
        {"body": body()},
        {"body": b"{"},
        {"body": body(model="nobody")},
        {"headers": [(b"content-type", b"text/plain")]},
        {"method": "GET"},
        {"method": "GET", "path": "/v1/models"},
        {"method": "GET", "path": "/health"},
        {"method": "GET", "path": "/nope"},
        {"method": "GET", "path": "/docs"},
    ]

    replies = [await call(app, **how) for how in asked]

    ids = {reply.header(b"x-typesafe-request-id") for reply in replies}
    assert len(ids) == len(asked)
    other = await ask(serving)
    assert other.header(b"x-typesafe-request-id") not in ids


class Broken(FakeEngine):
    """An engine that answers nonsense, or raises."""

    limits = Limits(max_tokens=10)

    def __init__(self, nonsense: Any) -> None:
        super().__init__()
        self._nonsense = nonsense

    async def answer(self, items: Sequence[Item]) -> list[Reading | Exception]:
        await super().answer(items)
        if isinstance(self._nonsense, BaseException):
            raise self._nonsense
        result: list[Reading | Exception] = self._nonsense
        return result


NONSENSE: dict[str, Any] = {
    "raises": RuntimeError("secret path"),
    "is cancelled": asyncio.CancelledError(),
    "is unavailable": EngineUnavailable("the queue is full"),
    "times out": TimeoutError(),
    "answers too little": [],
    "answers too much": [Reading((0.5, 0.5))] * 2,
    "fails one item": [ValueError("secret text")],
    "answers with no distribution": [Reading((0.9, 0.9))],
    "answers with NaN": [Reading((float("nan"), 1.0))],
    "answers with texts": [Reading(("a", "b"))],  # type: ignore[arg-type]
}


class TestAnEngineThat:
    @pytest.mark.parametrize("nonsense", NONSENSE.values(), ids=NONSENSE)
    async def test_fails_is_a_reason_to_retry_and_nothing_is_stored(self, nonsense):
        serving = Serving(engine=Broken(nonsense))

        reply = await ask(serving, body(questions={"q": NOUL}))

        status, kind = shape_b(reply)
        assert (status, kind) in {(503, "upstream_error"), (503, "overloaded_error")}
        assert float(reply.header(b"retry-after")) < 30
        assert "secret" not in reply.body.decode()
        assert await serving.store.count(1_000.0) == 0

    async def test_recovers_is_asked_again_at_once(self):
        failures: list[Exception] = [ValueError("once")]
        serving = Serving(engine=FakeEngine(fails=lambda item: failures.pop() if failures else None))
        app = serving.app()

        replies = [await call(app, body(questions={"q": NOUL})) for _ in range(2)]

        assert [reply.status for reply in replies] == [503, 200]

    async def test_hangs_is_left_at_the_deadline(self):
        serving = Serving(engine=FakeEngine(gate=asyncio.Event()), deadline_s=0.01)

        assert shape_b(await ask(serving)) == (503, "overloaded_error")


class DownStore(MemoryStore):
    """A store that does not answer."""

    def __getattribute__(self, name: str) -> Any:
        if name in ("get_many", "add", "replace", "read_fences", "add_fence"):
            raise StoreUnavailable(name, "connection refused")
        return super().__getattribute__(name)


async def test_a_store_that_is_down_costs_no_answer_and_the_reply_says_so():
    serving = Serving(store=DownStore(max_entries=1))
    app = serving.app()

    first, again = await call(app, body()), await call(app, body())

    assert (first.status, again.status) == (200, 200)
    assert [reply.json["x_precedent"]["stored"] for reply in (first, again)] == [False, False]
    assert again.json["x_precedent"]["source"] == "replay"
    assert first.json["answers"] == again.json["answers"]


class TestTheDocument:
    async def test_describes_the_decision_route(self, serving):
        document = (await ask(serving, b"", method="GET", path="/openapi.json")).json

        decide = document["paths"]["/v1/systemone"]["post"]
        assert {"200", "400", "401", "403", "408", "409", "413", "415", "422", "429", "503", "504"} <= decide[
            "responses"
        ].keys()
        assert "/v1/models" in document["paths"]

    async def test_has_a_page_that_loads_nothing_from_elsewhere(self, serving):
        page = await ask(serving, b"", method="GET", path="/docs")

        assert page.status == 200
        for link in re.findall(rb"(?:src|href)=\"([^\"]+)\"", page.body):
            asset = await ask(serving, b"", method="GET", path="/" + link.decode())
            assert asset.status == 200

    async def test_tells_the_truth_about_replies(self, serving):
        app = serving.app()

        for _ in range(2):
            reply = await call(app, body())
            schema.DecisionResponse.model_validate(reply.json, strict=True)
        schema.ValidationErrors.model_validate((await ask(serving, b"{")).json)
        schema.Error.model_validate((await ask(serving, body(model="x"))).json)

    @pytest.mark.parametrize("real", REAL_BODIES)
    async def test_tells_the_truth_about_requests(self, serving, real):
        schema.DecisionRequest.model_validate(real)

        assert (await ask(serving, json.dumps(real).encode())).status == 200


async def test_what_nobody_foresaw_is_logged_and_told_in_our_shape(caplog):
    clock_is_broken = Serving(clock=lambda: 1 // 0)

    with caplog.at_level(logging.ERROR):
        reply = await ask(clock_is_broken)

    assert shape_b(reply) == (500, "internal_error")
    assert "division" not in reply.body.decode()
    assert "ZeroDivisionError" in caplog.text


MARKER = "zq7-marker"


class TestNothingIsRepeated:
    """No text of a request comes back in an error; ids and option names may, to say a place."""

    @pytest.mark.parametrize(
        "raw",
        [
            f'{{"model":"jev-latest","state":"{MARKER}'.encode(),
            f'{{"state":"{MARKER}","state":"{MARKER}"}}'.encode(),
            f'{{"state":"{MARKER}\\ud800"}}'.encode(),
            f'{{"state":"{MARKER}","x":1e999}}'.encode(),
            f'{{"state":"{MARKER}","x":NaN}}'.encode(),
            f'{{"state":"{MARKER}","x":'.encode() + b"[" * 99 + b"]" * 99 + b"}",
            f"{MARKER}".encode(),
            f'"{MARKER}"'.encode(),
            body(model=MARKER),
            body(state=f"{MARKER}" * 3_000),
            body(state=MARKER, questions={}),
            body(state=MARKER, questions={"q": {"type": MARKER}}),
            body(
                state=MARKER, questions={"q": {"type": "noul", "instructions": MARKER, "criteria": [MARKER]}}
            ),
            body(
                state=MARKER,
                questions={"q": {"type": "choice", "criteria": [MARKER], "instructions": MARKER}},
            ),
            body(state=MARKER, questions={"q": {"type": "score", "criteria": [MARKER, None]}}),
            body(state=MARKER, stream=MARKER),
            body(state=MARKER, assets={MARKER: MARKER}),
        ],
    )
    async def test_in_a_refusal(self, serving, raw, caplog):
        reply = await ask(serving, raw)

        assert 400 <= reply.status < 500
        assert MARKER not in reply.body.decode()
        assert MARKER not in caplog.text

    async def test_in_a_failure_of_the_engine(self, caplog):
        serving = Serving(engine=FakeEngine(fails=lambda item: ValueError(item.state)))

        reply = await ask(serving, body(state=MARKER))

        assert reply.status == 503
        assert MARKER not in reply.body.decode()
        assert MARKER not in caplog.text
