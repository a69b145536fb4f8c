"""Which texts the embedded engine compares a state with."""

from dataclasses import dataclass

from core.contract.questions import Choice, Noul, Score


@dataclass(frozen=True, slots=True)
class Sides:
    """The texts for yes and for no; at least one of them is there."""

    yes: str | None
    no: str | None


def option_texts(question: Choice | Score) -> tuple[str, ...]:
    """One text per option: its name with its description, or the level's own text."""
    if isinstance(question, Score):
        return question.levels
    return tuple(
        _joined(_spoken(name), description)
        for name, description in zip(question.options, question.descriptions, strict=True)
    )


def sides(question: Noul) -> Sides:
    """What a yes and what a no would be near to.

    Instructions alone describe a yes. Where both sides are described, each stands with the instructions, so
    that what they share does not count.
    """
    if question.yes and question.no:
        return Sides(
            _joined(question.instructions, question.yes), _joined(question.instructions, question.no)
        )
    yes = _joined(question.instructions, question.yes) or None
    return Sides(yes, question.no or None)


def _spoken(name: str) -> str:
    # The encoder has read sentences, not identifiers.
    return name.replace("_", " ")


def _joined(first: str | None, second: str | None) -> str:
    return ": ".join(text for text in (first, second) if text and not text.isspace())
