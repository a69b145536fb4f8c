import json
from dataclasses import asdict, replace
from math import inf

import pytest
from hypothesis import given
from hypothesis import strategies as st

from core.errors import InvalidRequest
from core.tables.watching import Tail
from core.tasks.record import (
    CertifySettings,
    FastTableSettings,
    Learned,
    Revocation,
    State,
    TableRef,
    object_digest,
)
from core.tasks.record_json import (
    FORMAT,
    decode,
    encode,
    export,
    names_objects,
    public,
    read_import,
)
from core.tasks.registry import Here
from tests.core.tasks.tables import CHOICE, certificate, record

TABLE, FIT = b"a table", b"what it was fitted on"
TAIL = Tail(0.25, 0.06)
REVOKED = (Revocation(2, 900.0, "it was wrong", is_final=True),)
OBJECTS = {object_digest(TABLE): TABLE, object_digest(FIT): FIT}


def whole(threshold=0.8, **fields):
    per_option = (5,) + (0,) * (len(fields.get("question", CHOICE)["criteria"]) - 1)
    ref = TableRef(
        3,
        "static",
        object_digest(TABLE),
        "",
        certificate(threshold),
        object_digest(FIT),
        per_option,
        "",
        TAIL,
    )
    return replace(record(n_examples=10, **fields).with_table(ref), revoked=REVOKED)


RECORDS = {
    "active": whole(context="You route mail.", report={"kept": True}),
    "learned": replace(whole(), learned=Learned(7, 1.5, "too few rows")),
    "nothing certified": whole(inf, state=State.OFF),
    "no table": record(table=None, certify=None, fast_table=None),
    "its own settings": whole(
        certify=CertifySettings(0.01, 0.2, 0.3, 400), fast_table=FastTableSettings("auto", "x", 0.2)
    ),
}


@pytest.mark.parametrize("one", RECORDS.values(), ids=RECORDS)
def test_a_record_comes_back_from_a_store_as_it_was(one):
    assert decode(encode(one), one.tenant, one.id, 7) == replace(one, version=7)


@pytest.mark.parametrize("one", RECORDS.values(), ids=RECORDS)
def test_a_record_is_plain_json_without_infinities(one):
    for shown in (public(one), export(one, OBJECTS), json.loads(encode(one))):
        assert json.loads(json.dumps(shown, allow_nan=False))


@pytest.mark.parametrize(
    "value", [b"", b"[]", b"{}", b'{"format": "precedent-task/2"}', encode(whole())[:-1] + b',"new":1}']
)
def test_what_another_version_wrote_is_not_taken_for_a_record(value):
    assert decode(value, "acme", "support", 1) is None


@given(st.integers(0, 10_000), st.sampled_from([b"0", b'"', b"{", b"null", b""]))
def test_a_damaged_record_is_none_or_a_record(place, other):
    value = encode(whole())
    place %= len(value)

    decode(value[:place] + other + value[place + 1 :], "acme", "support", 1)


class TestWhatCallersSee:
    def test_is_the_certificate_with_what_it_promises(self):
        shown = public(whole())["certificate"]

        assert shown["certified"] is True
        assert (shown["alpha"], shown["delta"], shown["threshold"]) == (0.05, 0.05, 0.8)
        assert (shown["certified_share"], shown["certified_n"], shown["errors_at_threshold"]) == (0.8, 80, 0)
        assert shown["error_rate_at_threshold"] == 0.0
        assert shown["upper_bound_at_threshold"] == 0.04
        assert "at most 0.05 of the answers with confidence 0.8 or more are wrong" in shown["summary"]

    def test_is_why_nothing_is_certified(self):
        shown = public(whole(inf))["certificate"]

        assert shown["certified"] is False
        assert shown["threshold"] is None
        assert shown["error_rate_at_threshold"] is None
        assert shown["summary"] == "nothing is certified: too few examples"

    def test_is_the_state_with_a_sentence(self):
        for state in State:
            status = public(whole(state=state))["status"]
            assert status["state"] == state.value
            assert status["text"].endswith(".")

    def test_is_why_an_active_table_cannot_be_asked_here(self):
        here = Here(State.UNAVAILABLE, "no encoder here")
        assert public(whole(), here)["status"]["state"] == "unavailable"
        assert public(whole(), here)["status"]["reason"] == "no encoder here"
        assert public(whole(state=State.OFF), here)["status"]["state"] == "off"

    def test_is_which_options_had_no_example(self):
        shown = public(whole())

        assert shown["per_option"] == {"billing": 5, "sales": 0}
        assert shown["not_learned"] == ["sales"]

    def test_is_no_tenant_and_no_digest(self):
        shown = json.dumps(public(whole()))

        assert "acme" not in shown
        assert not any(digest in shown for digest in OBJECTS)

    @pytest.mark.parametrize(
        ("options", "warned"), [(("a", "b"), False), (("a", "b", "c"), True), (("a", "b", " Other"), False)]
    )
    def test_is_a_warning_where_no_option_stands_for_the_rest(self, options, warned):
        one = whole(question=CHOICE | {"criteria": dict.fromkeys(options)})

        codes = [each["code"] for each in public(one)["certificate"]["warnings"]]

        assert codes == (["no_catch_all_option"] if warned else [])


class TestImport:
    def test_brings_what_export_wrote(self):
        one = whole(context="You route mail.")

        (found,) = read_import({"tasks": [export(one, OBJECTS)]}, "globex")

        assert found.record == replace(one, tenant="globex", version=0)
        assert found.objects == OBJECTS

    def test_takes_the_tenant_from_who_asks(self):
        value = {"tasks": [export(whole(), OBJECTS) | {"tenant": "victim"}]}

        (found,) = read_import(value, "globex")

        assert found.record.tenant == "globex"

    @pytest.mark.parametrize(
        "spoilt",
        [
            {"format": "other/1"},
            {"objects": {}},
            {"objects": {digest: "AAAA" for digest in OBJECTS}},
            {"objects": None},
            {"objects": {digest: "*" for digest in OBJECTS}},
            {"question": {"type": "rank"}},
            {"state": "asleep"},
            {"id": ""},
            {"table": {}},
            {"new": 1},
        ],
        ids=str,
    )
    def test_refuses_what_is_not_as_it_was_exported_and_takes_nothing(self, spoilt):
        good = export(whole(), OBJECTS)

        with pytest.raises(InvalidRequest) as caught:
            read_import({"tasks": [good, good | spoilt]}, "globex")
        assert [problem.loc for problem in caught.value.problems] == [("body", "tasks", 1)]

    @pytest.mark.parametrize("value", [None, {}, {"tasks": []}, {"tasks": {}}, []])
    def test_refuses_what_holds_no_tasks(self, value):
        with pytest.raises(InvalidRequest, match="exported tasks"):
            read_import(value, "globex")


def test_a_record_names_its_table_and_what_it_was_fitted_on():
    assert set(names_objects(whole())) == set(OBJECTS)
    assert names_objects(record(table=None)) == ()


def test_the_format_is_pinned():
    """A change of it makes every stored task unreadable."""
    value = json.loads(encode(whole()))

    assert value["format"] == FORMAT == "precedent-task/2"
    assert value.keys() - {"format"} == asdict(whole()).keys() - {"tenant", "id", "version"}


def first_format(value):
    """A record as the first format had it."""
    fields = {
        name: member for name, member in value.items() if name not in ("versions", "revoked", "learned")
    }
    table = dict(fields["table"])
    later = {name: table.pop(name) for name in ("fit", "per_option", "engine", "tail", "is_timed")}
    moved = {"table": table, "fit_object": later["fit"], "per_option": later["per_option"]}
    return fields | moved | {"format": "precedent-task/1"}


def test_a_record_of_the_first_format_is_read_with_its_one_version():
    value = first_format(json.loads(encode(whole())))

    read = decode(json.dumps(value).encode(), "acme", "support", 4)

    assert read is not None
    assert read.table is not None
    assert read.versions == (read.table,)
    assert names_objects(read) == (object_digest(TABLE), object_digest(FIT))
    assert read.table.per_option == (5, 0)
    assert (read.revoked, read.learned) == ((), None)


def test_a_task_that_was_exported_in_the_first_format_is_imported():
    (imported,) = read_import({"tasks": [first_format(export(whole(), OBJECTS))]}, "acme")

    assert imported.record.table is not None
    assert imported.record.table.fit == object_digest(FIT)


def test_what_was_learned_elsewhere_is_imported_without_the_numbers_of_rows_that_stay_behind():
    learned = replace(whole(), learned=Learned(7, 1.5))
    (imported,) = read_import({"tasks": [export(learned, OBJECTS)]}, "acme")

    assert imported.record.learned == Learned()


def test_five_versions_are_kept_and_their_objects_named():
    made = record(table=None)
    for version in range(1, 8):
        made = made.with_table(TableRef(version, "static", f"{version:032x}", "", certificate()))

    assert [one.version for one in made.versions] == [7, 6, 5, 4, 3]
    assert names_objects(made) == tuple(f"{version:032x}" for version in (7, 6, 5, 4, 3))
