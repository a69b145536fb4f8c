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
    yes, no = said(question.yes), said(question.no)
    if yes is not None and no is not None:
        return Sides(_joined(question.instructions, yes), _joined(question.instructions, no))
    return Sides(_joined(question.instructions, yes) or None, no)


def said(text: str | None) -> str | None:
    """The text, or None where it says nothing."""
    return text if text and not text.isspace() else None


def _spoken(name: str) -> str:
    # The encoder has read sentences, not identifiers.
    return name.replace("_", " ")


def _joined(first: str | None, second: str | None) -> str:
    return ": ".join(filter(None, map(said, (first, second))))
