"""Which questions, kinds and options a decision is about: one of another shape is no answer to a request."""

from collections.abc import Mapping

import orjson

from core.contract.questions import Noul, Question, Score

Shape = tuple[tuple[str, ...], ...]  # per question: id, kind, options; all in order


def of_answers(answers: bytes) -> Shape | None:
    """The shape of an `answers` object; None when it is none."""
    try:
        return tuple(
            (question, answer["type"], *answer.get("probabilities", ()))
            for question, answer in orjson.loads(answers).items()
        )
    except (orjson.JSONDecodeError, AttributeError, KeyError, TypeError):
        return None


def of_questions(questions: Mapping[str, Question]) -> Shape:
    """The shape that the answers to these questions have."""
    return tuple((name, *_kind_and_options(question)) for name, question in questions.items())


def _kind_and_options(question: Question) -> tuple[str, ...]:
    if isinstance(question, Noul):
        return ("noul",)
    if isinstance(question, Score):
        return ("score", *map(str, range(question.size)))
    return ("choice", *question.options)
