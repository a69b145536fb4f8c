"""The official client, unchanged, against the running service."""

import asyncio
from collections.abc import Callable
from typing import Any

import httpx2
import pytest
from typesafe_sdk import (
    AsyncTypeSafeClient,
    Choice,
    Noul,
    RetryPolicy,
    Score,
    SystemOneResponse,
    TypeSafeBadRequestError,
    TypeSafeClient,
    TypeSafeUnprocessableEntityError,
)

from tests.running import Service

pytestmark = pytest.mark.service

QUESTIONS: dict[str, Any] = {
    "refund": Noul(instructions="Does the customer ask for a refund?"),
    "team": Choice(
        instructions="Who should answer?", criteria={"Billing": "charges", "Technical": None, "기타": None}
    ),
    "tone": Score(instructions="How upset?", criteria=["calm", "annoyed", {"label": "furious"}]),
}
SHORT = "I was charged twice for order 5512."
LONG = "The parcel came late and the box was open. " * 60
ONCE = RetryPolicy(max_retries=0)


class Recording(httpx2.HTTPTransport):
    """A transport that remembers what was sent."""

    def __init__(self) -> None:
        super().__init__()
        self.sent: list[httpx2.Request] = []

    def handle_request(self, request: httpx2.Request) -> httpx2.Response:
        """Send the request, and keep it."""
        self.sent.append(request)
        return super().handle_request(request)


def sync_call(service: Service, state: Any) -> SystemOneResponse:
    with TypeSafeClient(api_key="any", base_url=service.url, retry=ONCE) as client:
        return client.system_one(state=state, questions=QUESTIONS)


def async_call(service: Service, state: Any) -> SystemOneResponse:
    async def call() -> SystemOneResponse:
        async with AsyncTypeSafeClient(api_key="any", base_url=service.url, retry=ONCE) as client:
            return await client.system_one(state=state, questions=QUESTIONS)

    return asyncio.run(call())


@pytest.mark.parametrize("call", [sync_call, async_call])
@pytest.mark.parametrize(
    "state",
    [SHORT, LONG, {"ticket": {"text": SHORT, "n": 7}}, [SHORT, LONG]],
    ids=lambda s: str(type(s).__name__) + str(len(str(s))),
)
def test_every_kind_of_answer_is_parsed(service, call: Callable[[Service, Any], SystemOneResponse], state):
    response = call(service, state)

    assert 0 <= response.nouls["refund"].noul <= 1
    assert response.choices["team"].choice in {"Billing", "Technical", "기타"}
    assert response.choices["team"].probabilities.keys() == {"Billing", "Technical", "기타"}
    assert 0 <= response.scores["tone"].score <= 2
    assert response.scores["tone"].legend == {0: "calm", 1: "annoyed", 2: {"label": "furious"}}
    assert response.request_id


def test_both_clients_get_the_same_decision(service):
    one, other = sync_call(service, "shared by both"), async_call(service, "shared by both")

    assert one.answers == other.answers


@pytest.mark.parametrize(("state", "encoding"), [(SHORT, None), (LONG, "zstd")])
def test_a_long_body_really_travels_compressed_and_is_the_same_request(service, state, encoding):
    transport = Recording()
    with TypeSafeClient(api_key="any", base_url=service.url, retry=ONCE, transport=transport) as client:
        packed = client.system_one(state=state, questions=QUESTIONS)
    with TypeSafeClient(api_key="any", base_url=service.url, retry=ONCE, compression=False) as client:
        plain = client.system_one(state=state, questions=QUESTIONS)

    (request,) = transport.sent
    assert request.headers.get("content-encoding") == encoding
    if encoding:
        assert request.content.startswith(b"\x28\xb5\x2f\xfd")
        assert len(request.content) < 1024 < len(LONG)
    assert packed.answers == plain.answers
    assert plain.usage.input_tokens == 0  # a replay of the first


def test_the_models_are_listed_and_each_can_be_asked(service):
    with TypeSafeClient(api_key="any", base_url=service.url, retry=ONCE) as client:
        names = [model.name for model in client.models.list().models]

        assert "jev-latest" in names
        for name in names:
            assert client.system_one(state=SHORT, questions=QUESTIONS, model=name).answers


def test_errors_are_of_the_class_that_their_status_means_and_read_well(service):
    with TypeSafeClient(api_key="any", base_url=service.url, retry=ONCE) as client:
        with pytest.raises(TypeSafeBadRequestError, match="names are case-sensitive") as unknown:
            client.system_one(state=SHORT, questions=QUESTIONS, model="JEV-LATEST")
        with pytest.raises(TypeSafeUnprocessableEntityError, match=r"questions\.q\.score\.criteria"):
            client.system_one(state=SHORT, questions={"q": {"type": "score", "criteria": ["x"] * 11}})

    assert unknown.value.request_id
