import json

import pytest

from benchmarks.result import meets, result
from benchmarks.run import COLUMNS, found, table, write


def test_a_ratio_is_the_median_of_ratios_that_were_measured_side_by_side():
    row = result("replay", [10.0, 30.0, 12.0], "us", [5.0, 10.0, 8.0], "<= 2.0")

    assert row["ratio"] == 2.0  # of 2, 3 and 1.5
    assert row["value"] == 12.0
    assert row["floor"] == 8.0
    assert row["spread"] == [1.5, 3.0]
    assert row["ok"] is True


def test_a_number_without_a_floor_is_judged_by_itself():
    row = result("bytes of a decision", [320.0], "B", target="<= 320")

    assert (row["floor"], row["ratio"], row["ok"], row["spread"]) == (None, None, True, [320.0, 320.0])


def test_a_number_without_a_target_is_neither_good_nor_bad():
    assert result("start", [12.0], "s")["ok"] is None


def test_each_measurement_needs_its_own_floor():
    with pytest.raises(ValueError, match="argument"):
        result("replay", [1.0, 2.0], "us", [1.0])


@pytest.mark.parametrize(
    ("number", "target", "met"),
    [(1.5, "<= 1.5", True), (1.51, "<= 1.5", False), (0.85, ">= 0.85", True), (0.84, ">= 0.85", False)],
)
def test_a_target_includes_its_limit(number, target, met):
    assert meets(number, target) is met


@pytest.mark.parametrize("target", ["1.5", "< 1.5", "about 2", ""])
def test_a_target_that_says_nothing_clear_is_refused(target):
    with pytest.raises(ValueError, match="target"):
        meets(1.0, target)


def test_the_results_file_says_where_and_with_what_it_was_measured(tmp_path):
    rows = [result("replay", [10.0], "us", [5.0], "<= 2.0")]

    report = json.loads(write(rows, tmp_path).read_text())

    assert report["machine"]
    assert {"python", "precedent", "ray"} <= report["versions"].keys()
    assert report["results"] == rows


def test_the_table_shows_every_column_and_what_missed_its_target():
    text = table([result("replay", [10.0], "us", [5.0], "<= 1.5"), result("start", [12.0], "s")])

    assert text.splitlines()[0].split() == list(COLUMNS)
    assert text.splitlines()[1].split()[-1] == "NO"


def test_modules_that_measure_are_found_and_helpers_are_not():
    names = found()

    assert "http_replay" in names
    assert not {"run", "load", "result", "constant_app"} & set(names)
