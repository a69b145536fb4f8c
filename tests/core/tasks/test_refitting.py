"""Which rows may certify. From rows to versions, and over HTTP: tests/deployments/test_learning."""

from dataclasses import replace

import numpy as np
import pytest

from core.tables.students import EncoderStudent, StaticStudent
from core.tables.table import Table
from core.tables.tokens import Tokens
from core.tasks.record import CertifySettings, FastTableSettings, Learned, Revocation, State
from core.tasks.refitting import NotEnough, Parts, Rows, Taken, candidates, divide, usable
from core.tasks.rows import Drawn, Row
from tests.core.tasks.tables import CHOICE, record
from tests.toy_language import examples, static_vectors, tokenizer_json


def row(number, drawn=Drawn.TRAFFIC, at=0.0, digest=None, **fields):
    made = Row(
        drawn,
        np.array([number], np.int64),
        (0.9, 0.1),
        0,
        (number if digest is None else digest).to_bytes(32),
        "this",
        "tokens",
        at,
    )
    return Taken(f"{drawn.value}-{number}", number, replace(made, **fields))


def learner(min_rows=100, **fields):
    wanted = FastTableSettings(learn=True, min_rows=min_rows)
    return record(
        table=None,
        state=State.LEARNING,
        fast_table=wanted,
        certify=CertifySettings(),
        learned=Learned(),
        **fields,
    )


def divided(task, uniform, chosen=()):
    parts = divide(task, Rows(uniform, chosen, {}))
    assert isinstance(parts, Parts)
    return parts


def numbers(taken):
    return {one.number for one in taken}


def test_half_of_the_fresh_rows_certify_and_everything_else_teaches():
    parts = divided(learner(), [row(n) for n in range(1, 201)])

    assert len(parts.certify) == 100
    assert numbers(parts.fit) | numbers(parts.certify) == set(range(1, 201))
    assert not numbers(parts.fit) & numbers(parts.certify)
    assert parts.used == 200


def test_rows_of_an_earlier_look_teach_and_never_certify_again():
    task = replace(learner(), learned=Learned(used=150))

    parts = divided(task, [row(n) for n in range(1, 301)])

    assert numbers(parts.certify) <= set(range(151, 301))
    assert set(range(1, 151)) <= numbers(parts.fit)


def test_rows_that_were_not_drawn_uniformly_never_certify():
    chosen = [row(n, Drawn.PASSED) for n in range(1_000, 1_100)]

    parts = divided(learner(), [row(n) for n in range(1, 201)], chosen)

    assert all(one.row.drawn.is_uniform for one in parts.certify)
    assert {one.id for one in chosen} <= {one.id for one in parts.fit}


def test_an_input_that_is_known_from_elsewhere_does_not_certify():
    uniform = [row(n, digest=n % 150) for n in range(1, 401)]
    task = replace(learner(), learned=Learned(used=50))

    parts = divided(task, uniform, [row(1_000, Drawn.SPOT_CHECK, digest=60)])

    known = {(n % 150).to_bytes(32) for n in range(1, 51)} | {(60).to_bytes(32)}
    assert not known & {one.row.input for one in parts.certify}
    assert not {one.row.input for one in parts.fit} & {one.row.input for one in parts.certify}


def test_after_a_suspension_only_what_came_since_certifies():
    task = learner(revoked=(Revocation(1, 500.0, "errors", is_final=True),))

    parts = divided(task, [row(n, at=float(n)) for n in range(1, 801)])

    assert min(numbers(parts.certify)) >= 500
    assert set(range(1, 500)) <= numbers(parts.fit)


def test_a_rollback_bars_no_rows():
    task = learner(revoked=(Revocation(1, 500.0, "rolled back", is_final=False),))

    assert min(numbers(divided(task, [row(n, at=float(n)) for n in range(1, 801)]).certify)) < 100


@pytest.mark.parametrize(("uniform", "had"), [(0, 0), (99, 99)])
def test_too_few_rows_say_how_many_more_are_needed(uniform, had):
    found = divide(learner(), Rows([row(n) for n in range(1, uniform + 1)], [], {}))

    assert found == NotEnough(had, 100)
    assert str(found).endswith(f"{100 - had} more")


def test_rows_about_something_else_or_by_another_tokenizer_are_left_out():
    rows = [row(1), row(2, about="that"), row(3, tokenizer="other"), row(4, vector=np.ones(3, np.float32))]

    assert numbers(usable(Rows(rows, [], {}), "this", "tokens", vectors=False).uniform) == {1, 4}
    assert numbers(usable(Rows([], rows, {}), "this", "tokens", vectors=True).chosen) == {4}


@pytest.fixture(scope="module")
def toy():
    """A task of three topics, and rows about each as the engine answered them, divided."""
    task = learner(question=CHOICE | {"criteria": dict.fromkeys(("card", "refund", "address"))})
    texts, labels = examples((150, 150, 150))
    features = Tokens(tokenizer_json()).features(texts)
    rows = []
    for number, (seen, label) in enumerate(zip(features, labels.tolist(), strict=True), 1):
        answer = tuple(0.9 if option == label else 0.05 for option in range(3))
        rows.append(row(number, features=np.sort(seen), answer=answer, top=label))
    return task, divided(task, rows)


class TestACandidate:
    def made(self, toy, labels):
        task, parts = toy
        (one,) = candidates(
            task, parts, labels, {"static": StaticStudent(static_vectors())}, lambda share: None
        )
        return one.certificate

    def test_of_rows_without_labels_agrees_with_the_engine(self, toy):
        certificate = self.made(toy, {})

        assert (certificate.kind, certificate.certified, certificate.distinct) == ("agreement", True, 225)
        assert certificate.delta == 0.05

    def test_of_rows_with_labels_is_gold_and_about_the_labelled_ones_alone(self, toy):
        labelled = {one.id: one.row.top for one in toy[1].certify[:120]}

        certificate = self.made(toy, labelled)

        assert (certificate.kind, certificate.certified, certificate.distinct) == ("gold", True, 120)

    def test_with_labels_that_contradict_the_table_is_not_certified(self, toy):
        wrong = {one.id: (one.row.top + 1) % 3 for one in toy[1].certify}

        assert self.made(toy, wrong).kind == "gold"
        assert not self.made(toy, wrong).certified

    def test_of_a_student_that_reads_vectors_learns_from_those_in_the_rows(self, toy):
        task, parts = toy
        vectors = np.eye(8, dtype=np.float32)

        def with_vectors(taken):
            return [replace(one, row=replace(one.row, vector=vectors[one.row.top])) for one in taken]

        student = EncoderStudent(lambda texts: vectors, "an encoder", tokenizer_json())
        whole = Parts(with_vectors(parts.fit), with_vectors(parts.certify), parts.used)
        (made,) = candidates(task, whole, {}, {"encoder": student}, lambda share: None)

        assert (made.student, made.certificate.certified) == ("an encoder", True)
        table = Table.of(made.table)
        (unknown,) = Tokens(tokenizer_json()).features(["my card"])
        assert np.argmax(table.judge(unknown, vectors[2]).probabilities) == 2
