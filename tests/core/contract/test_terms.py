import pytest

from core.contract.terms import PLAIN, read_terms
from core.errors import InvalidHeader

UNTIL = b"x-precedent-evidence-valid-until"
THRESHOLD = b"x-precedent-noul-threshold"


def test_headers_that_say_nothing_are_plain_terms():
    assert read_terms([(b"host", b"x"), (b"x-tenant", b"acme")]) is PLAIN


def test_revisions_are_read_as_they_were_written():
    terms = read_terms(
        [(b"x-precedent-evidence-revision", " docs-7é ".encode()), (b"x-precedent-contract-revision", b"v2")]
    )

    assert (terms.evidence, terms.contract) == ("docs-7é", "v2")


@pytest.mark.parametrize("revision", [b"", b" ", b"x" * 257])
def test_a_revision_of_no_or_too_many_characters_is_refused(revision):
    with pytest.raises(InvalidHeader, match="characters"):
        read_terms([(b"x-precedent-evidence-revision", revision)])


@pytest.mark.parametrize(
    ("text", "instant"),
    [
        (b"1900000000", 1_900_000_000.0),
        (b"1900000000.25", 1_900_000_000.25),
        (b"0", 0.0),
        (b"2030-03-17T17:46:40Z", 1_900_000_000.0),
        (b"2030-03-17t17:46:40z", 1_900_000_000.0),
        (b"2030-03-17T18:46:40+01:00", 1_900_000_000.0),
        (b"2030-03-17T17:46:40.250Z", 1_900_000_000.25),
    ],
)
def test_a_validity_is_unix_seconds_or_rfc_3339(text, instant):
    assert read_terms([(UNTIL, text)]).evidence_valid_until == instant


@pytest.mark.parametrize(
    "text",
    [
        b"",
        b"soon",
        b"nan",
        b"inf",
        b"-1",
        b"1e999",
        b"2030-03-17T17:46:40",
        b"2030-13-01T00:00:00Z",
        b"1_0",
        b"1900000000000",
    ],
)
def test_a_validity_that_names_no_instant_is_refused(text):
    with pytest.raises(InvalidHeader, match="RFC 3339"):
        read_terms([(UNTIL, text)])


def test_a_header_that_stands_twice_is_refused():
    with pytest.raises(InvalidHeader, match="more than once"):
        read_terms([(UNTIL, b"1900000000"), (UNTIL, b"1900000001")])


def test_bytes_that_are_not_utf8_are_refused():
    with pytest.raises(InvalidHeader, match="UTF-8"):
        read_terms([(b"x-precedent-contract-revision", b"\xff")])


def test_cache_directives_are_read_in_any_case_from_any_number_of_headers():
    terms = read_terms([(b"cache-control", b"No-Cache, max-age=60"), (b"cache-control", b"no-store , x=1")])

    assert (terms.no_cache, terms.no_store, terms.only_if_cached, terms.max_age_s) == (
        True,
        True,
        False,
        60.0,
    )


def test_a_quoted_or_enormous_max_age_is_read():
    assert read_terms([(b"cache-control", b'max-age="5"')]).max_age_s == 5.0
    assert read_terms([(b"cache-control", b"max-age=" + b"9" * 400)]).max_age_s == 2.0**31


@pytest.mark.parametrize("value", [b"max-age=", b"max-age=-1", b"max-age=1.5", b"max-age=soon", b"max-age"])
def test_a_max_age_that_is_no_number_of_seconds_is_refused(value):
    with pytest.raises(InvalidHeader, match="whole number"):
        read_terms([(b"cache-control", value)])


def test_thresholds_are_read_by_question_id():
    terms = read_terms([(THRESHOLD, "refund=0.75, a=b=.5 ,질문=0.9,x%2Cy=0.25,".encode())])

    assert terms.noul_thresholds == {"refund": 0.75, "a=b": 0.5, "질문": 0.9, "x,y": 0.25}


@pytest.mark.parametrize(
    "text", [b"refund", b"=0.5", b"refund=", b"refund=0", b"refund=1", b"refund=nan", b"a=2"]
)
def test_a_threshold_outside_zero_and_one_is_refused(text):
    with pytest.raises(InvalidHeader, match="between 0 and 1"):
        read_terms([(THRESHOLD, text)])
