"""The readout's numbers are fitted as they say they are."""

import json
import math
import re
from pathlib import Path

import numpy as np
import pytest

from core.engines.artefact import RECIPE, SOURCE_SHA256, digest_of
from core.engines.profile import PROFILE_FILE, Profile, read_profile
from core.engines.vectors import Encoded
from core.errors import SettingsError
from jobs.calibrate import (
    ABOUT_NO,
    ABOUT_YES,
    FILES,
    OPTION_COUNTS,
    SEED,
    UNFITTED,
    Cases,
    Labelled,
    Vectors,
    auc,
    calibrate,
    ece,
    fitted,
    is_fitted_on,
    logistic,
    minimum,
)

DATA = Path(__file__).resolve().parents[3] / "shared" / "data"
SHIPPED = json.loads(PROFILE_FILE.read_bytes())


def sigmoid(x):
    return 1 / (1 + np.exp(-x))


# The measures, worked by hand


def test_calibration_error_is_the_gap_of_each_bin_weighed_by_its_share():
    confidence = np.array([0.9, 0.9, 0.9, 0.9, 0.5, 0.5])
    right = np.array([True, True, True, False, False, False])

    # Two bins: |0.9 - 3/4| on 4 of 6, |0.5 - 0| on 2 of 6.
    assert ece(confidence, right) == pytest.approx(0.15 * 4 / 6 + 0.5 * 2 / 6, abs=5e-5)


@pytest.mark.parametrize(
    ("confidence", "right", "expected"), [(1.0, True, 0), (1.0, False, 1), (0.0, True, 1)]
)
def test_calibration_error_at_the_ends(confidence, right, expected):
    assert ece(np.array([confidence]), np.array([right])) == expected


def test_bins_have_equal_width():
    # 15 bins: 0.06 and 0.07 stand on both sides of 1/15, so that their gaps do not cancel.
    assert ece(np.array([0.06, 0.07]), np.array([False, True])) == pytest.approx((0.06 + 0.93) / 2)


@pytest.mark.parametrize(
    ("scores", "positive", "expected"),
    [
        ([1, 2, 3, 4], [0, 0, 1, 1], 1.0),
        ([1, 2, 3, 4], [1, 1, 0, 0], 0.0),
        ([1, 2, 3, 4], [0, 1, 0, 1], 0.75),  # 3 of 4 pairs
        ([5, 5, 5], [0, 1, 1], 0.5),  # ties count half
        ([1, 2, 2], [0, 0, 1], 0.75),
    ],
)
def test_auc_is_the_share_of_pairs_in_the_right_order(scores, positive, expected):
    assert auc(np.array(scores, dtype=float), np.array(positive, dtype=bool)) == expected


@pytest.mark.parametrize("lowest", [1.0, 17.3, 80.0])
def test_the_minimum_of_a_valley_is_found_to_a_hundredth(lowest):
    assert minimum(lambda x: (x - lowest) ** 2, 1.0, 80.0) == pytest.approx(lowest, abs=0.01)


def test_logistic_regression_on_one_number_matches_odds_counted_by_hand():
    # At 0, 1 of 4 is a yes: log odds -log 3. At 1, 3 of 4: log odds +log 3.
    x = np.array([0.0] * 4 + [1.0] * 4)
    y = np.array([1, 0, 0, 0, 1, 1, 1, 0], dtype=bool)

    [scale], offset = logistic(x[:, None], y)

    assert offset == pytest.approx(-math.log(3))
    assert scale == pytest.approx(2 * math.log(3))


# The fit


def drawn_from(profile: Profile, rows: int) -> Cases:
    """Similarities with answers drawn as `profile` says; as many yes as no."""
    rng = np.random.default_rng(SEED)
    to_state, to_instructions, gold = [], [], []
    for count in (2, 5, 20):
        state, asked = rng.uniform(0, 0.5, (2, rows, count))
        logits = profile.option_scale * (state + profile.instruction_weight * asked)
        to_state.append(state)
        to_instructions.append(asked)
        gold.append((logits + rng.gumbel(size=logits.shape)).argmax(1))
    sides = rng.uniform(-0.2, 0.8, (rows, 2))
    weights = np.array([profile.sides_yes_scale, -profile.sides_no_scale])
    is_yes = rng.random(rows) < sigmoid(sides @ weights + profile.sides_offset)
    return Cases(to_state, to_instructions, gold, sides, is_yes)


@pytest.mark.parametrize(
    "known",
    [Profile(18.0, 0.1, 0.0, 0.0, 13.0, 4.0, -3.9), Profile(40.0, 0.2, 0.0, 0.0, 6.0, 0.0, -1.8)],
    ids=["one", "other"],
)
def test_the_fit_recovers_the_numbers_that_answers_were_drawn_with(known):
    found = fitted(drawn_from(known, 20_000))

    assert found.option_scale == pytest.approx(known.option_scale, rel=0.05)
    assert found.instruction_weight == known.instruction_weight
    assert found.sides_yes_scale == pytest.approx(known.sides_yes_scale, rel=0.05)
    assert found.sides_no_scale == pytest.approx(known.sides_no_scale, abs=0.2)
    assert found.sides_offset == pytest.approx(known.sides_offset, abs=0.2)


def test_a_noul_with_one_text_has_a_fit_of_its_own():
    # Drawn without a no side: its numbers must be those of the yes side alone.
    found = fitted(drawn_from(Profile(18.0, 0.1, 0.0, 0.0, 13.0, 0.0, -3.9), 20_000))

    assert found.yes_scale == pytest.approx(13.0, rel=0.05)
    assert found.yes_offset == pytest.approx(-3.9, abs=0.2)


def test_the_fit_judges_better_than_other_numbers_and_is_calibrated():
    known = Profile(18.0, 0.1, 0.0, 0.0, 13.0, 4.0, -3.9)
    cases = drawn_from(known, 20_000)

    judged = cases.judged(fitted(cases))
    blunt = cases.judged(UNFITTED)

    for kind in ("choice", "noul", "noul_two_sides"):
        assert judged[kind]["nll"] < blunt[kind]["nll"]
        assert judged[kind]["ece"] < 0.02
    assert judged["noul"]["auc"] == blunt["noul"]["auc"]  # order does not depend on scale


LABELS = 80  # more than the longest list of options


def toy(count: int) -> Vectors:
    """Texts of `LABELS` labels in turn, each with the vector of its label and no other."""

    def encode(text: str) -> Encoded:
        numbers = re.findall(r"\d+", text)
        if not numbers or "not" in text:  # a no that names no topic
            return Encoded(np.zeros(LABELS, dtype=np.float32), 1, False)
        return Encoded(np.eye(LABELS, dtype=np.float32)[int(numbers[-1]) % LABELS], 1, False)

    labels = [f"label_{n:02}" for n in range(LABELS)]
    return Vectors.of(
        Labelled("toy", [f"text {n}" for n in range(count)], labels, np.arange(count) % LABELS), encode
    )


def test_every_case_holds_the_right_option_once_in_a_place_drawn_at_random():
    cases = Cases.draw([toy(800)], np.zeros(LABELS, dtype=np.float32), np.random.default_rng(SEED))

    for count, to_state, gold in zip(OPTION_COUNTS, cases.to_state, cases.gold, strict=True):
        assert to_state.shape == (800, count)
        assert (to_state[np.arange(800), gold] == 1).all()
        assert (to_state.sum(axis=1) == 1).all()
        assert set(gold.tolist()) == set(range(count))


def test_half_of_the_yes_no_cases_ask_about_the_texts_own_label():
    cases = Cases.draw([toy(800)], np.zeros(LABELS, dtype=np.float32), np.random.default_rng(SEED))

    assert cases.sides.shape == (800 * len(ABOUT_YES) * len(ABOUT_NO), 2)
    assert cases.is_yes.mean() == pytest.approx(0.5, abs=0.02)
    assert (cases.sides[:, 0] == cases.is_yes).all()


def test_a_no_is_about_another_topic_or_no_topic_in_turn():
    cases = Cases.draw([toy(800)], np.zeros(LABELS, dtype=np.float32), np.random.default_rng(SEED))

    by_wording = cases.sides[:, 1].reshape(len(ABOUT_YES), len(ABOUT_NO), 800)
    answers = cases.is_yes.reshape(len(ABOUT_YES), len(ABOUT_NO), 800)
    for number, wording in enumerate(ABOUT_NO):
        expected = ~answers[:, number] if "{other}" in wording else np.zeros_like(answers[:, number])
        assert (by_wording[:, number] == expected).all()


def test_copies_of_a_text_stay_on_one_side_of_the_split():
    assert is_fitted_on("Where is my card?") == is_fitted_on("  where is MY card?\n")


def test_the_split_is_about_even_and_each_text_is_in_one_half():
    vectors = toy(600)

    fit, held = vectors.half(True), vectors.half(False)

    assert fit.size + held.size == 600
    assert 250 < fit.size < 350


def test_a_folder_without_the_data_is_an_error_that_names_the_files(tmp_path):
    with pytest.raises(SettingsError, match=r"banking77_train\.csv, clinc150_train\.jsonl"):
        calibrate(tmp_path, tmp_path)


# What ships


def test_the_shipped_numbers_are_those_that_are_read():
    assert Profile(**SHIPPED["profile"]) == read_profile()
    assert read_profile().option_scale > 0
    assert read_profile().yes_scale > 0
    assert read_profile().sides_yes_scale > read_profile().sides_no_scale > 0


def test_the_shipped_profile_says_what_it_was_fitted_on_and_how():
    provenance = SHIPPED["provenance"]

    assert provenance["source_sha256"] == SOURCE_SHA256
    assert provenance["recipe"] == RECIPE
    assert provenance["seed"] == SEED
    assert tuple(provenance["option_counts"]) == OPTION_COUNTS
    assert "SHA-256" in provenance["split"]
    assert {name: about["file"] for name, about in provenance["data"].items()} == FILES
    for about in provenance["data"].values():
        assert len(about["sha256"]) == 64
        assert min(about["fitted"], about["held_out"]) > 1_000
    for kind, before in provenance["held_out_before"].items():
        assert provenance["held_out_after"][kind]["nll"] < before["nll"]
        assert provenance["held_out_after"][kind]["ece"] < before["ece"]


@pytest.mark.skipif(not DATA.exists(), reason=f"the public data sets are not in {DATA}")
def test_the_shipped_profile_was_fitted_on_the_data_beside_the_checkout():
    for about in SHIPPED["provenance"]["data"].values():
        assert digest_of(DATA / about["file"]) == about["sha256"]
