import math
import subprocess
import sys
from threading import Thread

import numpy as np
import pytest

from core.contract.answers import margin, top_option
from core.errors import ArtefactMismatch
from core.tables import container
from core.tables.features import PAIR_SLOTS, featurize
from core.tables.table import Parts, Table
from core.tables.tokens import Tokens
from core.tables.verdict import Verdict
from tests.toy_language import examples, tokenizer_json

SIZE = Tokens(tokenizer_json()).size


def parts(options=4, seed=0, bias=None, weights=None, known=None):
    """A table in which every feature has a row of its own."""
    rng = np.random.default_rng(seed)
    features = SIZE + PAIR_SLOTS
    rows = rng.integers(-9_000, 9_000, (features + 1, options)).astype(np.int16)
    rows[0] = 0
    return Parts(
        kind="static" if weights is None else "encoder",
        student="" if weights is None else "some encoder",
        tokenizer=tokenizer_json(),
        index=np.arange(1, features + 1, dtype=np.int32),
        rows=rows,
        step=1e-4,
        bias=np.zeros(options) if bias is None else np.array(bias),
        known=np.ones(SIZE, np.bool_) if known is None else known,
        weights=weights,
    )


def test_a_verdict_is_the_softmax_of_the_sum_of_the_rows():
    made = parts(bias=[0.5, 0.0, -0.5, 0.0])
    ids = Tokens(made.tokenizer).ids("i lost my card")
    features = featurize(ids, SIZE)
    scores = made.bias + made.rows[made.index[features]].sum(0) * 1e-4 / math.sqrt(len(features))
    expected = np.exp(scores) / np.exp(scores).sum()

    verdict = Table.made_of(made).decide("i lost my card")

    np.testing.assert_allclose(verdict.probabilities, expected, rtol=1e-12)
    assert math.isclose(verdict.confidence, margin(verdict.probabilities), rel_tol=1e-12)


def test_probabilities_sum_to_one_and_the_confidence_lies_between_none_and_one():
    table = Table.made_of(parts(options=77))

    for text in examples((50, 50, 50))[0]:
        verdict = table.decide(text)
        assert math.isclose(sum(verdict.probabilities), 1.0, abs_tol=1e-9)
        assert 0.0 <= verdict.confidence <= 1.0
        assert all(type(p) is float for p in (*verdict.probabilities, verdict.confidence))


def test_an_option_absent_from_the_fit_has_no_probability_at_all():
    table = Table.made_of(parts(bias=[0.0, -math.inf, 0.0, 0.0]))

    verdict = table.decide("lost card")

    assert table.missing == (1,)
    assert verdict.probabilities[1] == 0.0
    assert not math.isnan(verdict.confidence)


def test_equal_options_tie_exactly_and_the_margin_is_zero():
    made = parts()
    made.rows[:, 2] = made.rows[:, 0]
    made.rows[:, [1, 3]] = -9_000

    verdict = Table.made_of(made).decide("lost card")

    assert verdict.confidence == 0.0
    assert top_option(("d", "a", "b", "c"), verdict.probabilities) == 2  # code-point order, not position


@pytest.mark.parametrize("text", ["", "   ", "\r\n\t", "\x00", "\u200b"])
def test_a_text_without_tokens_is_never_answered(text):
    verdict = Table.made_of(parts()).decide(text)

    assert math.isnan(verdict.confidence)
    assert math.isclose(sum(verdict.probabilities), 1.0, abs_tol=1e-9)


def test_a_text_of_which_less_than_half_is_known_is_never_answered():
    known = np.ones(SIZE, np.bool_)
    known[Tokens(tokenizer_json()).unknown_id] = False
    table = Table.made_of(parts(known=known))

    assert math.isnan(table.decide("card xyzzy plugh").confidence)
    assert not math.isnan(table.decide("card xyzzy").confidence)


def test_blanks_and_line_ends_do_not_matter():
    table = Table.made_of(parts())

    assert (
        table.decide("lost my\r\ncard") == table.decide(" lost  my\tcard\n") == table.decide("lost my card")
    )


def test_extreme_scores_do_not_overflow():
    made = parts(bias=[5_000.0, -5_000.0, 0.0, 0.0])

    verdict = Table.made_of(made).decide("lost card")

    assert verdict.probabilities == (1.0, 0.0, 0.0, 0.0)
    assert verdict.confidence == 1.0


def test_the_longest_text_cannot_overflow_the_sum():
    made = parts()
    made.rows[1:] = np.iinfo(np.int16).max

    verdict = Table.made_of(made).decide("card " * 10_000)

    assert verdict.probabilities == (0.25,) * 4


def test_an_encoder_table_adds_the_product_with_the_vector():
    weights = np.random.default_rng(3).normal(size=(4, 5)).astype(np.float32)
    vector = np.ones(5, np.float32)
    plain, table = Table.made_of(parts()), Table.made_of(parts(weights=weights))
    (seen,) = Tokens(tokenizer_json()).features(["lost card"])

    np.testing.assert_allclose(table.scores(seen, vector), plain.scores(seen) + weights.sum(1), rtol=1e-6)
    assert (plain.kind, plain.student) == ("static", "")
    assert (table.kind, table.student) == ("encoder", "some encoder")


def test_sorted_features_are_judged_as_the_text_is():
    table = Table.made_of(parts())

    for text in (*examples((60, 60, 60))[0], "", "xyzzy", "card xyzzy plugh lost"):
        assert repr(table.judge(np.sort(table.see(text)))) == repr(table.decide(text))


def test_answers_are_the_same_in_any_order_and_on_any_thread():
    data = Table.made_of(parts(options=20)).to_bytes()
    texts = examples((60, 60, 60))[0]
    table = Table.of(data)
    first = [table.decide(text) for text in texts]
    from_threads: list[list[Verdict]] = [[], [], []]

    def ask(into):
        into.extend(table.decide(text) for text in texts)

    threads = [Thread(target=ask, args=(into,)) for into in from_threads]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    backwards = [Table.of(data).decide(text) for text in reversed(texts)][::-1]

    assert first == backwards
    assert all(each == first for each in from_threads)


def test_a_table_is_the_same_after_a_trip_through_a_file(tmp_path):
    table = Table.made_of(parts())
    path = tmp_path / "table"
    path.write_bytes(table.to_bytes())

    opened = Table.open(path)

    assert opened.digest == table.digest
    assert opened.to_bytes() == table.to_bytes()
    assert opened.decide("lost card") == table.decide("lost card")


def test_a_tables_arrays_cannot_be_written_to(tmp_path):
    path = tmp_path / "table"
    path.write_bytes(Table.made_of(parts()).to_bytes())

    for table in (Table.of(path.read_bytes()), Table.open(path)):
        arrays = (table._index, table._rows, table._bias, table._known)
        assert not any(array.flags.writeable for array in arrays)
        assert not any(array.flags.owndata for array in arrays)  # views of the file: nothing was copied


def test_the_digest_names_the_bytes():
    one, same, other = Table.made_of(parts()), Table.made_of(parts()), Table.made_of(parts(seed=1))

    assert one.digest == same.digest != other.digest
    assert len(one.digest) == 32


def test_bytes_of_another_format_or_of_other_features_are_refused():
    arrays, metadata = container.read(Table.made_of(parts()).to_bytes())

    for name in ("format", "features"):
        with pytest.raises(ArtefactMismatch, match="fit the task again"):
            Table.of(container.write(arrays, {**metadata, name: "another"}))
    with pytest.raises(ArtefactMismatch):
        Table.of(b"not a table at all")


def test_serving_loads_nothing_that_only_fitting_needs():
    heavy = ("scipy", "sklearn", "safetensors", "onnxruntime")
    loaded = f"import sys, core.tables.table; print([m for m in {heavy} if m in sys.modules])"

    done = subprocess.run([sys.executable, "-c", loaded], capture_output=True, text=True, check=True)

    assert done.stdout.strip() == "[]"
