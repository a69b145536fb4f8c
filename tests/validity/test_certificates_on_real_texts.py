"""That certificates hold for a real student on real texts, over 200 random divisions of them.

The texts that a student was not fitted on are taken for all there are, so its true error is counted and not
estimated; each certificate sees a sample of them, drawn with replacement.
"""

import numpy as np
import pytest

from core.tables.certify import Outcomes, Sample, certify
from core.tables.split import input_digest, split
from core.tables.static_vectors import load_static
from core.tables.students import Answers, StaticStudent
from examples.demo_table import PART, read
from jobs.models import MODELS_DIR, prepare_vectors

FITS, DRAWS, N = 8, 25, 300
DELTA = 0.1


def outcomes(verdicts, gold):
    tops = [int(np.argmax(verdict.probabilities)) for verdict in verdicts]
    return Outcomes(np.array([verdict.confidence for verdict in verdicts]), np.array(tops) != gold)


def fitted(number):
    """Outcomes out of fold on the fit texts, and on all the others."""
    rows = read(whole=PART.with_name("not there"))
    names = sorted({row.label for row in rows})
    gold = np.array([names.index(row.label) for row in rows])
    parts = split([input_digest(row.text, "support") for row in rows], f"fit {number}", 0.6)
    fit, rest = ([rows[i].text for i in part] for part in (parts.fit, parts.certify))
    learned = gold[list(parts.fit)]
    student = StaticStudent(load_static("english", MODELS_DIR))
    made = student.fit(student.see(fit), Answers(learned), len(names), lambda share: None)
    asked = [made.table.decide(text) for text in rest]
    return outcomes(made.rehearsal, learned), outcomes(asked, gold[list(parts.certify)])


@pytest.mark.validity
@pytest.mark.parametrize("alpha", [0.05, 0.02])
def test_a_certificate_on_real_texts_is_wrong_no_more_often_than_delta(alpha):
    prepare_vectors(MODELS_DIR)
    false = certified = 0
    for number in range(FITS):
        rehearsal, everything = fitted(number)
        for draw in range(DRAWS):
            drawn = np.random.default_rng((number, draw)).integers(0, len(everything.wrong), N)
            held = Outcomes(everything.confidence[drawn], everything.wrong[drawn])
            found = certify(rehearsal, held, Sample("support", N, N, ()), alpha=alpha, delta=DELTA)
            if found.certified:
                certified += 1
                covered = everything.confidence >= found.threshold
                false += bool(everything.wrong[covered].mean() > alpha)

    draws = FITS * DRAWS
    assert certified > draws / 4  # or nothing was put to the test
    assert false / draws <= DELTA + 3 * np.sqrt(DELTA * (1 - DELTA) / draws)
