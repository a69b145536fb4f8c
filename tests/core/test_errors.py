"""The tree of errors is complete, drawn as it is, and crosses process boundaries whole."""

import pickle
import re

import pytest

from core import errors
from tests.error_examples import EXAMPLES, leaves, subclasses


def test_every_error_that_is_raised_has_an_example():
    assert sorted(type(error).__name__ for error in EXAMPLES) == sorted(kind.__name__ for kind in leaves())


@pytest.mark.parametrize("error", EXAMPLES, ids=lambda error: type(error).__name__)
class TestEachError:
    def test_survives_pickling_with_its_fields_and_its_sentence(self, error):
        copy = pickle.loads(pickle.dumps(error))

        assert type(copy) is type(error)
        assert vars(copy) == vars(error)
        assert str(copy) == str(error)

    def test_survives_a_second_journey_unchanged(self, error):
        there_and_back = pickle.loads(pickle.dumps(pickle.loads(pickle.dumps(error))))

        assert str(there_and_back) == str(error)

    def test_reads_as_one_sentence(self, error):
        assert re.fullmatch(r"[^\n]{10,250}", str(error))
        assert "Error(" not in str(error)


def test_the_tree_in_the_module_is_the_tree_of_the_classes():
    drawn = re.findall(r"[├└]── (\w+)", errors.__doc__ or "")

    assert drawn == [kind.__name__ for kind in subclasses(errors.PrecedentError)]


def test_an_invalid_request_names_every_problem_with_its_place():
    error = errors.InvalidRequest(
        (errors.Problem(("body", "state"), "Field required", "missing"), errors.Problem(("a", 1), "no", "x"))
    )

    assert str(error) == "body.state: Field required; a.1: no"
