"""The wire contract as OpenAPI models: read by people and by client generators, never by the hot route."""

from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field

Text = str | dict[str, Any] | list[Any]


class _Open(BaseModel):
    model_config = ConfigDict(extra="allow")


class NoulQuestion(_Open):
    """A yes/no question. It needs instructions, or a description of at least one side."""

    type: Literal["noul"]
    instructions: Text | None = None
    criteria: dict[str, Text | None] | None = Field(
        None, description="What makes the answer `true`, and what makes it `false`; both are optional."
    )


class ChoiceQuestion(_Open):
    """One of 1 to 255 named options."""

    type: Literal["choice"]
    instructions: Text | None = None
    criteria: dict[str, Text | None] = Field(
        description="Option name to description, in order.", min_length=1, max_length=255
    )


class ScoreQuestion(_Open):
    """A level on a scale of 1 to 10 described levels."""

    type: Literal["score"]
    instructions: Text | None = None
    criteria: list[Text] = Field(description="Levels, lowest first.", min_length=1, max_length=10)


Question = Annotated[NoulQuestion | ChoiceQuestion | ScoreQuestion, Field(discriminator="type")]


class DecisionRequest(_Open):
    """A state and typed questions about it."""

    model: str = Field(examples=["jev-latest"])
    state: Text = Field(examples=["I was charged twice for order 5512."])
    questions: dict[str, Question] = Field(
        min_length=1,
        examples=[{"refund": {"type": "noul", "instructions": "Does the customer ask for a refund?"}}],
    )


class NoulAnswer(BaseModel):
    """The probability that the answer is yes."""

    type: Literal["noul"]
    noul: float = Field(ge=0, le=1)


class ChoiceAnswer(BaseModel):
    """The most probable option; exact ties go to the name that sorts first."""

    type: Literal["choice"]
    choice: str
    probabilities: dict[str, float]
    confidence: float = Field(ge=0, le=1, description="(n * p_max - 1) / (n - 1)")


class ScoreAnswer(BaseModel):
    """The expected level."""

    type: Literal["score"]
    score: float
    legend: dict[str, Text]
    probabilities: dict[str, float]
    confidence: float = Field(ge=0, le=1)


class Usage(BaseModel):
    """Tokens of this call's own inference; zero for a replay."""

    input_tokens: int
    output_tokens: int


class About(BaseModel):
    """How this answer came about. Members of this object belong to the call, not to the decision."""

    source: Literal["replay", "model", "coalesced"]
    key: str = Field(description="The decision's key, 32 hexadecimal digits.")
    margins: dict[str, float] = Field(description="How far each answer is from flipping, 0 to 1.")
    age_s: float = Field(description="Seconds since the decision was made.")
    truncated: list[str] | None = Field(
        None, description="Questions for which part of the text was left out."
    )
    stored: bool | None = Field(None, description="False when the store could not take the decision.")


class DecisionResponse(BaseModel):
    """One answer per question, under the question's id."""

    model: str
    answers: dict[str, Annotated[NoulAnswer | ChoiceAnswer | ScoreAnswer, Field(discriminator="type")]]
    usage: Usage
    x_precedent: About


class StatesBatch(_Open):
    """One set of questions about many states."""

    model: str = Field(examples=["jev-latest"])
    states: list[Text] = Field(min_length=1, max_length=64)
    questions: dict[str, Question] = Field(min_length=1)


class RequestsBatch(_Open):
    """Whole requests."""

    requests: list[DecisionRequest] = Field(min_length=1, max_length=64)


class ItemError(BaseModel):
    """Why one item of a batch has no answer."""

    status: int = Field(description="The status that the item alone would have got.")
    detail: Any = Field(description="The detail that the item alone would have got.")


class FailedItem(BaseModel):
    """The result of an item that has no answer."""

    error: ItemError


class BatchResponse(BaseModel):
    """One result per item, in the order of the items."""

    results: list[DecisionResponse | FailedItem]
    total_usage: Usage


def _header(name: str, description: str) -> dict[str, Any]:
    return {
        "name": name,
        "in": "header",
        "required": False,
        "schema": {"type": "string"},
        "description": description,
    }


TERMS = [
    _header("x-precedent-evidence-revision", "Another revision of the evidence is another decision."),
    _header(
        "x-precedent-evidence-valid-until",
        "RFC 3339 or Unix seconds. Expired evidence gets 409, and no decision outlives it.",
    ),
    _header("x-precedent-contract-revision", "Another revision of what the questions mean."),
    _header("x-precedent-noul-threshold", "Margins by your own thresholds, such as `refund=0.75,spam=0.9`."),
    _header("cache-control", "`no-cache`, `no-store`, `only-if-cached` or `max-age=60`, as in RFC 9111."),
]
"""The headers that say how a call is to be answered, as OpenAPI parameters."""


class Model(BaseModel):
    """A name that requests may use."""

    name: str
    description: str
    release_date: str


class Models(BaseModel):
    """All names that requests may use, aliases included."""

    models: list[Model]


class ProblemItem(BaseModel):
    """One violation of the contract."""

    loc: list[str | int]
    msg: str
    type: str


class ValidationErrors(BaseModel):
    """Status 422: every problem found, at most twenty."""

    detail: list[ProblemItem]


class ErrorDetail(BaseModel):
    """What went wrong."""

    error_type: str
    message: str


class Error(BaseModel):
    """Every other status."""

    detail: ErrorDetail
