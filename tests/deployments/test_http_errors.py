"""Every error has one meaning on the wire, in one of two shapes, and repeats nothing that could do harm."""

import json
import re

import pytest

from core import errors
from deployments.http_errors import (
    MAX_NAME_CHARS,
    MAX_PROBLEMS,
    MEANING,
    error_body,
    error_for_status,
    error_response,
)
from tests.error_examples import EXAMPLES, leaves


def meaning_of(kind: type[errors.PrecedentError]) -> type[errors.PrecedentError] | None:
    return next((base for base in kind.__mro__ if base in MEANING), None)


@pytest.mark.parametrize("kind", leaves(), ids=lambda kind: kind.__name__)
def test_every_error_has_a_meaning_and_only_operators_errors_share_one(kind):
    expected = errors.OperatorError if issubclass(kind, errors.OperatorError) else kind

    assert meaning_of(kind) is expected


def test_every_meaning_belongs_to_an_error():
    assert set(MEANING) <= {*leaves(), errors.OperatorError}


@pytest.mark.parametrize("error", EXAMPLES, ids=lambda error: type(error).__name__)
class TestEachError:
    def test_says_who_acts_by_its_status(self, error):
        status = error_response(error)[0]

        if isinstance(error, errors.RetryLater):
            assert status in (429, 503)
        elif isinstance(error, errors.OperatorError):
            assert status == 500
        else:
            assert 400 <= status < 500 or isinstance(error, errors.NotCached)

    def test_has_one_of_the_two_shapes(self, error):
        status, body, _ = error_response(error)

        detail = json.loads(body)["detail"]
        if status == 422:
            assert detail
            for problem in detail:
                assert problem["loc"][0] == "body"
                assert isinstance(problem["msg"], str)
                assert isinstance(problem["type"], str)
        else:
            more = (
                {"kind", "task", "store_version", "your_version"}
                if type(error) is errors.TaskConflict
                else set()
            )
            assert detail.keys() == {"error_type", "message"} | more
            assert re.fullmatch("[a-z_]+", detail["error_type"])
            assert detail["message"]

    def test_tells_the_client_when_to_retry_if_it_may(self, error):
        headers = dict(error_response(error)[2])

        if isinstance(error, errors.RetryLater):
            # The official client fails at once when asked to wait for longer than its budget of 30 s.
            assert 0 < float(headers[b"retry-after"]) <= 10
        else:
            assert b"retry-after" not in headers

    def test_gives_each_response_headers_of_its_own(self, error):
        error_response(error)[2].append((b"x-added", b"by one response"))

        assert (b"x-added", b"by one response") not in error_response(error)[2]


def test_what_is_wrong_with_the_service_is_not_told_to_strangers():
    _, body, _ = error_response(
        errors.ArtefactMismatch("/srv/models/secret.onnx", "aa", "bb", "run make models")
    )

    assert b"secret" not in body
    assert b"see its log" in body


def test_a_syntax_error_says_where():
    status, body, _ = error_response(errors.MalformedBody("JSON syntax error", 17))

    assert status == 422
    assert json.loads(body)["detail"] == [
        {
            "loc": ["body", 17],
            "msg": "JSON decode error",
            "type": "json_invalid",
            "input": {},
            "ctx": {"error": "the body is not acceptable JSON: JSON syntax error"},
        }
    ]


def test_names_that_say_where_a_problem_is_are_cut_and_inert():
    name = "<script>&\u2028\x1b[31m" + "x" * 500
    problem = errors.Problem(("body", "questions", name, 3), "must be a string", "string_type")

    _, body, _ = error_response(errors.InvalidRequest((problem,)))

    assert body.isascii()
    assert not re.search(rb"[<>&\x00-\x1f]", body)
    loc = json.loads(body)["detail"][0]["loc"]
    assert loc[2] == name[:MAX_NAME_CHARS]
    assert loc[3] == 3


def test_a_name_cut_in_the_middle_of_a_surrogate_pair_cannot_occur():
    _, body, _ = error_response(errors.InvalidRequest((errors.Problem(("body", "🙂" * 100), "m", "t"),)))

    assert json.loads(body)["detail"][0]["loc"] == ["body", "🙂" * MAX_NAME_CHARS]


def test_no_more_than_twenty_problems_are_told():
    problems = tuple(errors.Problem(("body", i), "m", "t") for i in range(500))

    assert len(json.loads(error_response(errors.InvalidRequest(problems))[1])["detail"]) == MAX_PROBLEMS == 20


@pytest.mark.parametrize(
    ("status", "kind"), [(404, "not_found"), (405, "api_usage_error"), (500, "api_usage_error")]
)
def test_what_the_framework_refuses_has_our_shape(status, kind):
    found, body = error_for_status(status)

    assert (found, json.loads(body)["detail"]["error_type"]) == (status, kind)


def test_the_body_of_an_error_is_compact_json():
    assert error_body({"error_type": "a", "message": "b <c>"}) == (
        b'{"detail":{"error_type":"a","message":"b \\u003cc\\u003e"}}'
    )
