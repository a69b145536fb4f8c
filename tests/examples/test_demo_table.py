"""The demonstration of tables, without a service: its data, its words, its errors."""

import json

import pytest

from benchmarks import table_latency
from examples.demo import DemoError
from examples.demo_table import PART, UNSEEN, Answered, divide, main, read, summary
from tests.running import free_port


def test_the_data_in_the_repository_suffices_for_a_certificate_and_no_text_is_on_both_sides(tmp_path):
    rows = read(whole=tmp_path / "not there", part=PART)

    learn, unseen = divide(rows)

    assert len(unseen) == UNSEEN
    assert len(learn) > 1_000
    assert not {row.text.casefold() for row in learn} & {row.text.casefold() for row in unseen}
    assert {row.label for row in unseen} == {row.label for row in learn}


def test_shares_errors_and_both_times_are_told():
    answered = [Answered("table", True, True, 1.0, 9.0)] * 3 + [Answered("table", True, False, 1.0, 9.0)]

    printed = summary([*answered, Answered("model", False, False, 8.0, 9.0)])

    assert "5 unseen texts: 4 (80.0%) by the table." in printed
    assert "Certified: 4; wrong among them: 1 (25.0%)." in printed
    assert "1.00 ms by the table" in printed
    assert "9.00 ms by the model" in printed


def test_when_no_text_was_answered_by_the_table_that_is_told():
    assert "none by the table" in summary([Answered("model", False, True, 8.0, 9.0)])


def test_when_the_service_is_not_up_it_says_how_to_start_it(capsys):
    assert main(["--url", f"http://127.0.0.1:{free_port()}"]) == 2

    assert "start one with `make serve`" in capsys.readouterr().err


@pytest.mark.parametrize("line", ["no json", "[]", '{"text": 1, "label": "a"}', '{"text": "a"}'])
def test_a_line_that_is_no_example_is_refused_with_its_number(tmp_path, line):
    path = tmp_path / "examples.jsonl"
    path.write_text(json.dumps({"text": "a", "label": "b"}) + "\n" + line)

    with pytest.raises(DemoError, match="line 2") as caught:
        table_latency.read_examples(path)

    assert "'text' and 'label' as strings" in str(caught.value)


def test_times_are_told_by_length_of_text_and_bands_without_a_probe_are_left_out():
    calls = [
        table_latency.Call(chars, took_ms, "table") for chars, took_ms in ((10, 1.0), (20, 3.0), (300, 5.0))
    ]

    short, long = table_latency.bands(calls, calls)

    assert (short["chars_from"], short["chars_below"], short["probes"]) == (0, 64, 2)
    assert short["with_table"] == {"p50_ms": 2.0, "p95_ms": pytest.approx(2.9), "mean_ms": 2.0}
    assert (long["chars_from"], long["probes"], long["by_table"]) == (256, 1, 1.0)
