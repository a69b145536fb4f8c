"""Zero-shot, with nothing but names: how often the embedded engine is right about public data.

On a part of it; `python -m benchmarks.embedded --full` takes all.
"""

import numpy as np
import pytest

from benchmarks.embedded import EVERY, judge
from core.contract.questions import Noul
from core.engines.base import Item
from jobs.calibrate import READERS, auc, spoken


@pytest.fixture(scope="module", params=READERS)
def judged(request, model, data):
    """How the engine does on every n-th text: (name of the set, what it is worth)."""
    return request.param, judge(model, READERS[request.param](data), EVERY[request.param])


def test_label_names_alone_tell_the_labels_apart(judged):
    name, worth = judged

    assert worth.accuracy >= {"banking77": 0.60, "clinc150": 0.66}[name]


def test_a_yes_is_likelier_for_the_right_label_than_for_another(judged):
    _, worth = judged

    assert worth.auc >= 0.85


@pytest.mark.parametrize("name", READERS)
@pytest.mark.parametrize(
    ("instructions", "yes", "no"),
    [
        ("Is this message about {}?", "it is about {}", "it is about something else"),
        ("Is this message about {}?", "it is about {}", "it is not about {}"),
        ("Is this message about {}?", None, "it is not about {}"),
        (None, "it is about {}", "it is not about {}"),
        (None, "it is about {}", None),
    ],
    ids=["something-else", "denied", "only-denied", "sides-denied", "yes"],
)
def test_a_yes_is_likelier_for_the_right_label_however_its_no_is_put(
    model, data, name, instructions, yes, no
):
    everything = READERS[name](data)
    rows = range(0, len(everything.texts), 8 * EVERY[name])
    items, right = [], []
    for count, row in enumerate(rows):
        own = count % 2 == 0
        label = everything.labels[(everything.gold[row] + (0 if own else count)) % len(everything.labels)]
        said = [text and text.format(spoken(label)) for text in (instructions, yes, no)]
        items.append(Item(everything.texts[row], Noul(*said)))
        right.append(own)

    probabilities = np.array([reading.probabilities[0] for reading in model.read(items)])

    assert auc(probabilities, np.array(right)) >= 0.85
