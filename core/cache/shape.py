"""Whether a decision answers the questions of a request; one about others does not, however it got there."""

from collections.abc import Mapping
from typing import Any

import orjson

from core.contract.questions import Choice, Noul, Question


def answers_fit(answers: bytes, questions: Mapping[str, Question]) -> bool:
    """Whether an `answers` object is about exactly these questions and their options, in this order."""
    try:
        given = orjson.loads(answers)
        return [*given] == [*questions] and all(map(_fits, given.values(), questions.values()))
    except (orjson.JSONDecodeError, AttributeError, KeyError, TypeError):
        return False


def same_shape(one: bytes, other: bytes) -> bool:
    """Whether two `answers` objects are about the same questions and options, in the same order."""
    try:
        return _shape(one) == _shape(other)
    except (orjson.JSONDecodeError, AttributeError, KeyError, TypeError):
        return False


def _fits(answer: Mapping[str, Any], question: Question) -> bool:
    kind = answer["type"]
    if isinstance(question, Noul):
        return bool(kind == "noul")
    options = tuple(answer["probabilities"])
    if isinstance(question, Choice):
        return kind == "choice" and options == question.options
    return kind == "score" and options == tuple(map(str, range(question.size)))


def _shape(answers: bytes) -> list[tuple[str, ...]]:
    return [
        (question, answer["type"], *answer.get("probabilities", ()))
        for question, answer in orjson.loads(answers).items()
    ]
