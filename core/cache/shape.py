"""Which questions, kinds and options a decision is about: one of another shape is no answer to a request."""

from collections.abc import Mapping
from typing import Any

import orjson

from core.contract.questions import Noul, Question, Score

Shape = dict[str, tuple[str, ...]]  # question id -> kind and options, both in order


def of_answers(answers: bytes) -> Shape | None:
    """The shape of an `answers` object; None when it is none."""
    try:
        return {question: _of_answer(answer) for question, answer in orjson.loads(answers).items()}
    except (orjson.JSONDecodeError, AttributeError, KeyError, TypeError):
        return None


def of_questions(questions: Mapping[str, Question]) -> Shape:
    """The shape that the answers to these questions have."""
    return {name: _of_question(question) for name, question in questions.items()}


def same(one: Shape | None, other: Shape | None) -> bool:
    """Whether two shapes name the same questions in the same order, with the same kinds and options."""
    return one is not None and other is not None and [*one.items()] == [*other.items()]


def _of_answer(answer: Mapping[str, Any]) -> tuple[str, ...]:
    return (answer["type"], *answer.get("probabilities", ()))


def _of_question(question: Question) -> tuple[str, ...]:
    if isinstance(question, Noul):
        return ("noul",)
    if isinstance(question, Score):
        return ("score", *map(str, range(question.size)))
    return ("choice", *question.options)
