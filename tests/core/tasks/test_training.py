"""From labelled examples to certified tables. A scripted student says what its texts tell it to."""

from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest

from core.contract.questions import QuestionReader
from core.errors import InvalidRequest
from core.tables.students import Fitted, Seen, StaticStudent
from core.tables.table import Table
from core.tables.verdict import Verdict
from core.tasks.lesson import Lesson
from core.tasks.record import CertifySettings
from core.tasks.registration import Examples
from core.tasks.training import recertify, train
from tests.core.tasks.tables import CHOICE
from tests.toy_language import examples, static_vectors

SCORE = {"type": "score", "criteria": ["calm", "cross", "angry", "furious"]}
NOUL = {"type": "noul", "instructions": "Is it urgent?"}


def says(option: int, number: int, confidence: float = 0.9) -> str:
    """A text of which every scripted table says `option`."""
    return f"{option} {confidence} no {number}"


@dataclass
class Script:
    """A table, and the student that makes it."""

    kind: str = "static"
    student: str = ""
    options: int = 2
    seen: Any = None

    def see(self, texts):
        return Seen([*texts])

    def fit(self, seen, answers, options, progress):
        texts = self.seen = seen.features
        progress(0.5)
        progress(1.0)
        made = Script(self.kind, options=options)
        return Fitted(made, [made.decide(text, ()) for text in texts])  # type: ignore[arg-type]

    def decide(self, text, vector=None):
        option, confidence = text.split()[:2]
        probabilities = [0.0] * self.options
        probabilities[int(option)] = 1.0
        if self.kind == "encoder":
            assert vector is not None
        return Verdict(tuple(probabilities), float(confidence))

    def to_bytes(self):
        return b"a table"


def lesson(texts, labels, raw=CHOICE, **fields) -> Lesson:
    question = QuestionReader().read("team", raw)
    assert question is not None
    given = Examples(tuple(texts), tuple(labels))
    return Lesson("support", raw, question, given, **{"certify": CertifySettings()} | fields)


def all_right(n: int, **fields) -> Lesson:
    return lesson([says(i % 2, i) for i in range(n)], [i % 2 for i in range(n)], **fields)


def no_vectors(texts):
    raise AssertionError("no vector is needed")


def trained(one: Lesson, *kinds: str, encode=no_vectors, tell=lambda share: None):
    return train(one, {kind: Script(kind) for kind in kinds or ("static",)}, encode, tell)


def problem(one: Lesson, *kinds: str) -> str:
    with pytest.raises(InvalidRequest) as caught:
        trained(one, *kinds)
    return str(caught.value)


class TestHowManyExamplesItTakes:
    def test_118_with_the_default_settings_and_117_are_refused_with_the_bound_and_what_is_missing(self):
        (one,) = trained(all_right(118))
        refused = problem(all_right(117))

        assert one.certificate.certified
        assert one.certificate.distinct == 59
        assert "58 distinct inputs are left" in refused
        assert "alpha 0.05 at delta 0.05 takes 59" in refused
        assert "1 more are needed there, about 2 more labelled examples at holdout 0.5" in refused

    def test_two_students_share_delta_so_that_72_are_needed(self):
        assert all(
            one.certificate.certified
            for one in trained(all_right(144), "static", "encoder", encode=lambda texts: [0] * len(texts))
        )
        assert "takes 72" in problem(all_right(142), "static", "encoder")

    def test_a_later_look_spends_less_and_needs_more(self):
        assert "at delta 0.0167 takes 80" in problem(all_right(118, looks=1))

    def test_copies_count_once(self):
        texts = [says(0, i) for i in range(40)] * 5

        assert "distinct inputs" in problem(lesson(texts, [0] * len(texts)))

    @pytest.mark.parametrize("n", [1, 2, 3])
    def test_a_handful_is_refused(self, n):
        assert "more are needed" in problem(all_right(n))

    def test_who_asks_for_more_than_the_floor_gets_that(self):
        certify = CertifySettings(min_examples=100)

        assert "min_examples asks for 100: 1 more are needed" in problem(all_right(198, certify=certify))
        assert trained(all_right(200, certify=certify))[0].certificate.certified

    def test_who_asks_for_less_than_the_floor_does_not_get_it(self):
        assert "takes 59" in problem(all_right(100, certify=CertifySettings(min_examples=10)))


class TestTheTwoSides:
    def test_share_no_input(self):
        student = Script()
        one = lesson([says(i % 2, i % 200) for i in range(1_000)], [i % 2 for i in range(1_000)])

        (made,) = train(one, {"static": student}, no_vectors, lambda share: None)

        assert made.certificate.distinct + len(set(student.seen)) == 200

    def test_an_input_in_both_lists_is_refused_with_the_number_of_them(self):
        own = Examples((says(0, 8).upper(), says(0, 9_999)), (0, 0))

        refused = problem(all_right(200, certify_examples=own))

        assert "1 of them are inputs that the table is fitted on" in refused
        assert "certify.examples" in refused

    def test_with_examples_of_its_own_to_certify_on_everything_else_is_fitted(self):
        student = Script()
        own = Examples(tuple(says(0, i) for i in range(1_000, 1_059)), (0,) * 59)

        (made,) = train(
            all_right(100, certify_examples=own), {"static": student}, no_vectors, lambda share: None
        )

        assert len(student.seen) == 100
        assert made.certificate.distinct == 59
        assert sum(made.per_option) == 100

    def test_the_order_of_the_examples_does_not_matter(self):
        texts, labels = examples((90, 90, 90))
        raw = CHOICE | {"criteria": {"a": None, "b": None, "c": None}}
        orders = [np.arange(len(texts)), np.random.default_rng(0).permutation(len(texts))]

        made = [
            train(
                lesson([texts[i] for i in order], labels[order].tolist(), raw),
                {"static": StaticStudent(static_vectors())},
                no_vectors,
                lambda share: None,
            )[0]
            for order in orders
        ]

        assert made[0].table == made[1].table
        assert made[0].certificate == made[1].certificate


class TestWhatIsWrong:
    def scored(self, off: int, level_error: int):
        """Every answer is `off` levels from its label."""
        n = 200
        labels = [i % 2 for i in range(n)]
        texts = [says(label + off, i) for i, label in enumerate(labels)]
        certify = CertifySettings(level_error=level_error)
        return train(
            lesson(texts, labels, SCORE, certify=certify),
            {"static": Script()},
            no_vectors,
            lambda share: None,
        )[0].certificate

    @pytest.mark.parametrize(
        ("off", "level_error", "certified"),
        [(0, 0, True), (1, 0, False), (1, 1, True), (2, 1, False)],
    )
    def test_of_a_score_is_what_is_further_off_than_allowed(self, off, level_error, certified):
        certificate = self.scored(off, level_error)

        assert certificate.certified is certified
        assert certificate.level_error == level_error

    def test_of_a_choice_is_any_other_option(self):
        texts = [says(1, i) for i in range(200)]

        (made,) = trained(lesson(texts, [0] * 200))

        assert not made.certificate.certified
        assert made.certificate.accuracy == 0.0


class TestCertifyingAnew:
    def first(self, n=400):
        (made,) = trained(all_right(n))
        return made

    def anew(self, n, certify=None, looks=1, start=10_000, fit=None):
        texts = [says(i % 2, start + i) for i in range(n)]
        one = lesson(texts, [i % 2 for i in range(n)], looks=looks, certify=certify or CertifySettings())
        fitted = self.first().fit if fit is None else fit
        return recertify(one, Script(), fitted, no_vectors)[0]  # type: ignore[arg-type]

    def test_keeps_the_table_and_spends_what_a_second_look_may(self):
        certificate = self.anew(200)

        assert certificate.certified
        assert certificate.delta == pytest.approx(0.1 / 6)
        assert certificate.distinct == 200

    def test_with_a_looser_alpha_needs_what_that_alpha_takes(self):
        loose = CertifySettings(alpha=0.1)

        assert self.anew(39, loose).certified
        with pytest.raises(InvalidRequest, match=r"alpha 0\.1 at delta 0\.0167 takes 39"):
            self.anew(38, loose)

    def test_on_what_the_table_was_fitted_on_is_refused(self):
        made = self.first()
        with pytest.raises(InvalidRequest, match="inputs that the table is fitted on"):
            self.anew(400, start=0, fit=made.fit)

    def test_by_a_level_error_that_the_first_did_not_have_uses_the_same_rehearsal(self):
        labels = [i % 2 for i in range(400)]
        texts = [says(label + 1, i) for i, label in enumerate(labels)]
        (made,) = train(lesson(texts, labels, SCORE), {"static": Script()}, no_vectors, lambda share: None)
        later = lesson(
            [says(1, 1_000 + i) for i in range(200)],
            [0] * 200,
            SCORE,
            looks=1,
            certify=CertifySettings(level_error=1),
        )

        assert not made.certificate.certified
        certificate, _ = recertify(later, Script(options=4), made.fit, no_vectors)  # type: ignore[arg-type]
        assert certificate.certified


def test_progress_goes_from_nothing_to_all_over_the_students():
    told: list[float] = []

    trained(all_right(400), "static", "encoder", encode=lambda texts: [0] * len(texts), tell=told.append)

    assert told == [0.25, 0.5, 0.75, 1.0, 1.0]


def test_a_table_that_needs_vectors_is_certified_with_those_of_the_texts():
    asked = []

    def encode(texts):
        asked.extend(texts)
        return np.zeros((len(texts), 4), np.float32)

    trained(all_right(400), "encoder", encode=encode)

    assert len(asked) == 200


def test_what_is_trained_is_the_table_that_its_bytes_are():
    texts, labels = examples((90, 90, 90))
    raw = CHOICE | {"criteria": {"a": None, "b": None, "c": None}}

    (made,) = train(
        lesson(texts, labels.tolist(), raw),
        {"static": StaticStudent(static_vectors())},
        no_vectors,
        lambda share: None,
    )

    table = Table.of(made.table)
    assert table.kind == made.kind == "static"
    assert made.certificate.certified
    assert sum(made.per_option) == 135
    assert made.certificate.covers(table.decide(texts[0]).confidence)


def test_an_option_without_fit_examples_is_an_error_wherever_it_was_right():
    raw = {"type": "choice", "criteria": {"a": None, "b": None, "c": None}}
    texts, labels = examples((120, 120, 90), seed=1)
    fit, own = Examples(tuple(texts[:240]), tuple(labels[:240])), Examples(tuple(texts[240:]), (2,) * 90)

    (one,) = train(
        lesson(fit.texts, fit.labels, raw, certify_examples=own),
        {"static": StaticStudent(static_vectors())},
        no_vectors,
        lambda share: None,
    )

    assert one.per_option == (120, 120, 0)
    assert one.certificate.distinct == 90
    assert one.certificate.accuracy == 0.0
    assert not one.certificate.certified
