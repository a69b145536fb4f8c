"""Decode a body strictly, and give its one compact form.

Python's own decoder accepts what a decision must not rest on: the last of two equal members wins silently,
`1e999` becomes infinity, half a surrogate pair becomes a string that cannot be encoded. Here each of those is
refused, with a fixed message that repeats nothing of the body.

The compact form is the decoded value written again without spaces, in member order. Two bodies have the same
compact form exactly when they hold the same value: `1`, `1.0`, `true` and `"1"` stay apart, escapes and
spaces do not count.
"""

import json
import re
from typing import Any, Never

import orjson

from core.errors import MalformedBody

MAX_DEPTH = 64
MAX_INTEGER_DIGITS = 308  # every such integer is finite as a double too

_SPACES = b" \t\n\r"
_GLANCE_BYTES = 64

# An unterminated string runs to the end of the text, so that every body is scanned once.
_BRACKETS = re.compile(rb'"(?:[^"\\]++|\\.)*+(?:"|\Z|\\\Z)|[\[\]{}]', re.DOTALL)


def decode(body: bytes) -> tuple[Any, bytes]:
    """Decode `body` and return the value with its compact form.

    Raises:
        MalformedBody: not UTF-8, not JSON, nested deeper than `MAX_DEPTH`, a member twice in one object,
            a number that is not finite or has more than `MAX_INTEGER_DIGITS` digits, a lone surrogate.
    """
    try:
        value = orjson.loads(body)
        compact = orjson.dumps(value)
    except (orjson.JSONDecodeError, TypeError):
        return _decode_strictly(body)  # it says what is wrong, and where
    if _lost_nothing(body, compact) and _is_shallow(body):
        return value, compact
    return _decode_strictly(body)


def decode_parts(body: bytes) -> Any:  # noqa: ANN401  any JSON value
    """Decode a body whose parts are judged one by one.

    Strings may hold lone surrogates, which `encode` refuses.

    Raises:
        MalformedBody: for every other reason that `decode` has.
    """
    try:
        return decode(body)[0]
    except MalformedBody:
        return _value(body)


def looks_spaced(body: bytes) -> bool:
    """Whether a body is plainly not in compact form, by a glance at its beginning."""
    return b'": ' in body[:_GLANCE_BYTES] or b"\n" in body[:_GLANCE_BYTES]


def _lost_nothing(body: bytes, compact: bytes) -> bool:
    """Whether what was decoded from `body`, written again as `compact`, is the whole of it.

    When a member was dropped or a number changed, the texts differ, and they still differ without their
    spaces: both are the same tokens in the same order up to the first that changed, a number ends where a
    mark follows, and a string where its quote is. So equal texts without spaces prove that nothing was lost.
    """
    return body == compact or body.translate(None, _SPACES) == compact.translate(None, _SPACES)


def encode(value: Any) -> bytes:  # noqa: ANN401  any JSON value
    """Write a decoded value in its compact form.

    Raises:
        MalformedBody: a lone surrogate somewhere in `value`.
    """
    try:
        return orjson.dumps(value)
    except TypeError:  # an integer of more than 64 bits, or a lone surrogate
        text = json.dumps(value, ensure_ascii=False, separators=(",", ":"), allow_nan=False)
        try:
            return text.encode()
        except UnicodeEncodeError:
            raise MalformedBody("a string holds half of a surrogate pair") from None


def _is_shallow(body: bytes) -> bool:
    return body.count(b"[") + body.count(b"{") <= MAX_DEPTH or _depth_is_allowed(body)


def _depth_is_allowed(body: bytes) -> bool:
    depth = 0
    for match in _BRACKETS.finditer(body):
        first = body[match.start()]
        if first in b"[{":
            depth += 1
            if depth > MAX_DEPTH:
                return False
        elif first in b"]}":
            depth -= 1
    return True


def _decode_strictly(body: bytes) -> tuple[Any, bytes]:
    value = _value(body)
    return value, encode(value)


def _value(body: bytes) -> Any:  # noqa: ANN401
    if not _depth_is_allowed(body):
        raise MalformedBody(f"nested deeper than {MAX_DEPTH} levels")
    try:
        return _STRICT.decode(body.decode())
    except UnicodeDecodeError as error:
        raise MalformedBody("not valid UTF-8", error.start) from None
    except json.JSONDecodeError as error:
        raise MalformedBody("JSON syntax error", error.pos) from None


def _object(members: list[tuple[str, Any]]) -> dict[str, Any]:
    value = dict(members)
    if len(value) != len(members):
        raise MalformedBody("an object holds the same member twice")
    return value


def _float(literal: str) -> float:
    value = float(literal)
    if value - value != 0.0:
        raise MalformedBody("a number is too large to be finite")
    return value


def _integer(literal: str) -> int:
    if len(literal.removeprefix("-")) > MAX_INTEGER_DIGITS:
        raise MalformedBody(f"an integer has more than {MAX_INTEGER_DIGITS} digits")
    return int(literal)


def _constant(_literal: str) -> Never:
    raise MalformedBody("NaN and Infinity are not JSON numbers")


_STRICT = json.JSONDecoder(
    object_pairs_hook=_object, parse_float=_float, parse_int=_integer, parse_constant=_constant
)
