"""Whatever a client sends: an answer or a refusal, never a failure of the server, a hang, or an echo."""

import asyncio
import json

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from core.contract.strict_json import encode
from tests.deployments.asgi import JSON_HEADERS, Reply, call
from tests.deployments.serving import Serving
from tests.strategies import JSON_VALUES, damaged_bytes, mutated_trees, spellings

FUZZ = settings(max_examples=200, suppress_health_check=[HealthCheck.too_slow])
MARKER = "zq7-marker"


def ask(raw: bytes, encoding: bytes = b"") -> Reply:
    headers = (*JSON_HEADERS, (b"content-encoding", encoding)) if encoding else JSON_HEADERS

    async def within_time() -> Reply:
        async with asyncio.timeout(10):
            return await call(Serving().app(), raw, headers=headers)

    return asyncio.run(within_time())


def assert_answer_or_refusal(reply: Reply) -> None:
    assert reply.status == 200 or 400 <= reply.status < 500
    assert reply.json.keys() == (
        {"model", "answers", "usage", "x_precedent"} if reply.status == 200 else {"detail"}
    )


@FUZZ
@given(damaged_bytes())
def test_a_damaged_body(raw):
    assert_answer_or_refusal(ask(raw))


@FUZZ
@given(mutated_trees())
def test_a_body_whose_tree_was_changed(tree):
    reply = ask(encode(tree))

    assert_answer_or_refusal(reply)
    if reply.status == 200:
        assert list(reply.json["answers"]) == list(tree["questions"])


@FUZZ
@given(JSON_VALUES)
def test_any_json(value):
    assert_answer_or_refusal(ask(encode(value)))


@FUZZ
@given(st.binary(max_size=200), st.sampled_from([b"", b"zstd", b"gzip", b"identity", b"br"]))
def test_any_bytes_under_any_encoding(raw, encoding):
    assert_answer_or_refusal(ask(raw, encoding))


@FUZZ
@given(st.data(), mutated_trees())
def test_two_spellings_of_one_tree_have_one_outcome(data, tree):
    async def both() -> tuple[Reply, Reply]:
        app = Serving().app()
        return await call(app, encode(tree)), await call(app, data.draw(spellings(tree)))

    one, other = asyncio.run(both())

    assert one.status == other.status
    if one.status == 200:
        assert one.json["answers"] == other.json["answers"]
        assert one.json["x_precedent"]["key"] == other.json["x_precedent"]["key"]
        assert other.json["x_precedent"]["source"] == "replay"


@FUZZ
@given(st.lists(mutated_trees() | JSON_VALUES, min_size=1, max_size=4))
def test_each_item_of_a_batch_has_the_outcome_that_it_has_alone(trees):
    async def together_and_alone() -> tuple[Reply, list[Reply]]:
        app = Serving().app()
        batch = await call(app, encode({"requests": trees}), path="/v1/systemone/batch")
        return batch, [await call(app, encode(tree)) for tree in trees]

    batch, alone = asyncio.run(together_and_alone())

    if batch.status == 422:  # an item may nest as deep as a body alone, and then the batch is too deep
        assert "nested deeper" in json.dumps(batch.json)
        return
    assert batch.status == 200
    for result, reply in zip(batch.json["results"], alone, strict=True):
        assert result.get("answers") == reply.json.get("answers")
        assert result.get("error", {"status": 200})["status"] == reply.status
        assert result.get("error", {}).get("detail") == reply.json.get("detail")


@FUZZ
@given(mutated_trees())
def test_no_text_of_a_refused_body_comes_back(tree):
    """Every text but ids and names of members is marked."""
    reply = ask(encode(_marked(tree)))

    if reply.status != 200:
        assert MARKER not in json.dumps(reply.json)


def _marked(node: object) -> object:
    if isinstance(node, dict):
        return {name: member if name == "type" else _marked(member) for name, member in node.items()}
    if isinstance(node, list):
        return [_marked(member) for member in node]
    return f"{MARKER} {node}" if isinstance(node, str) else node
