"""Zero-shot, with nothing but names: how often the embedded engine is right about public data.

On a part of it; `python -m benchmarks.embedded --full` takes all.
"""

import pytest

from benchmarks.embedded import EVERY, judge
from jobs.calibrate import READERS


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
