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

    Instructions describe a yes, so they stand before its text. The text of a no stands alone: with the
    instructions before it, it would be near to every state that they are about.
    """
    return Sides(_joined(question.instructions, question.yes) or None, said(question.no))


def said(text: str | None) -> str | None:
    """The text, or None where it says nothing."""
    return text if text and not text.isspace() else None


def _spoken(name: str) -> str:
    # The encoder has read sentences, not identifiers.
    return name.replace("_", " ")


def _joined(first: str | None, second: str | None) -> str:
    return ": ".join(filter(None, map(said, (first, second))))
