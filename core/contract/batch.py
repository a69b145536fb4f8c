"""Many requests in one body: one set of questions about many states, or whole requests.

Each part is judged by itself: what is wrong with one costs the others nothing.
"""

from typing import Any, Final

from core.contract.request import Opened, open_value
from core.contract.strict_json import decode_parts
from core.errors import InvalidRequest, MalformedBody, Problem

MAX_ITEMS: Final = 64
MAX_QUESTIONS: Final = 4_096  # of all items together: each is a reading of the engine
STATES: Final = "states"
REQUESTS: Final = "requests"


def open_batch(body: bytes) -> list[Opened | MalformedBody]:
    """Read a batch; each part is what `open_body` would have made of it alone, or why it could not.

    `{"states": [...], ...}` stands for one request per state, every other member as it is and where it is.
    `{"requests": [...]}` holds whole requests.

    Raises:
        MalformedBody: the body is not acceptable JSON.
        InvalidRequest: it is neither form, holds no item or more than `MAX_ITEMS`, or asks more than
            `MAX_QUESTIONS` in all.
    """
    value = decode_parts(body)
    if not isinstance(value, dict):
        raise _refusal(("body",), "the body must be an object", "dict_type")
    items = _items(value)
    asked = sum(_questions_of(item) for item in items)
    if asked > MAX_QUESTIONS:
        msg = (
            f"the items ask {asked} questions and {MAX_QUESTIONS} are allowed together; send several batches"
        )
        raise _refusal(("body",), msg, "too_long")
    return [_opened(item) for item in items]


def _items(value: dict[str, Any]) -> list[Any]:
    if (STATES in value) == (REQUESTS in value):
        raise _refusal(("body",), "a batch holds either states or requests", "missing")
    name = STATES if STATES in value else REQUESTS
    parts = value[name]
    if not isinstance(parts, list):
        raise _refusal(("body", name), "must be an array", "list_type")
    if not 1 <= len(parts) <= MAX_ITEMS:
        msg = f"there are {len(parts)} items and 1 to {MAX_ITEMS} are allowed; send several batches"
        raise _refusal(("body", name), msg, "too_long" if parts else "too_short")
    if name == REQUESTS:
        return parts
    return [_with_state(value, state) for state in parts]


def _with_state(value: dict[str, Any], state: Any) -> dict[str, Any]:  # noqa: ANN401
    return {
        ("state" if name == STATES else name): member if name != STATES else state
        for name, member in value.items()
    }


def _questions_of(item: Any) -> int:  # noqa: ANN401
    questions = item.get("questions") if isinstance(item, dict) else None
    return len(questions) if isinstance(questions, dict) else 0


def _opened(item: Any) -> Opened | MalformedBody:  # noqa: ANN401
    try:
        return open_value(item)
    except MalformedBody as error:
        return error


def _refusal(loc: tuple[str, ...], msg: str, kind: str) -> InvalidRequest:
    return InvalidRequest((Problem(loc, msg, kind),))
