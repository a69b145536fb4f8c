"""Hypothesis strategies for JSON values, their spellings and damaged bodies; real bodies to start from."""

import json
from copy import deepcopy
from typing import Any

from hypothesis import strategies as st

# Small pools beside free values, so that two draws are often equal, or differ in their type alone.
LEAVES = st.one_of(
    st.sampled_from([None, True, False, 0, 1, -1, 0.0, -0.0, 1.0, "", "0", "1", "true", "null", "a", "b"]),
    st.integers(-(2**70), 2**70),
    st.floats(allow_nan=False, allow_infinity=False),
    st.text(st.characters(exclude_categories=["Cs"]), max_size=8),
)
NAMES = st.one_of(st.sampled_from(["", "a", "b", "A", "é", "e\u0301", "🙂"]), st.text(max_size=4)).filter(
    lambda name: not any("\ud800" <= char <= "\udfff" for char in name)
)
JSON_VALUES: st.SearchStrategy[Any] = st.recursive(
    LEAVES,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(NAMES, inner, max_size=4),
    max_leaves=12,
)


def typed(value: Any) -> Any:
    """A form in which two JSON values are equal only when they are the same value of the same type."""
    if isinstance(value, dict):
        return ("object", tuple((name, typed(member)) for name, member in value.items()))
    if isinstance(value, list):
        return ("array", tuple(typed(member) for member in value))
    return (type(value).__name__, repr(value))


@st.composite
def spellings(draw: st.DrawFn, value: Any) -> bytes:
    """Some way to write `value` in JSON, with spaces, escapes and number forms of its own."""
    return _spell(draw, value).encode()


def _spell(draw: st.DrawFn, value: Any) -> str:
    if isinstance(value, dict):
        members = [f"{_spell(draw, name)}{_space(draw)}:{_spell(draw, value[name])}" for name in value]
        text = "{" + ",".join(members) + _space(draw) + "}"
    elif isinstance(value, list):
        text = "[" + ",".join(_spell(draw, member) for member in value) + _space(draw) + "]"
    elif isinstance(value, str):
        text = '"' + "".join(_spell_char(draw, char) for char in value) + '"'
    elif isinstance(value, float):
        text = draw(st.sampled_from([repr(value), repr(value).replace("e", "E"), f"{value:.17e}"]))
    else:
        text = json.dumps(value)
    return _space(draw) + text + _space(draw)


def _space(draw: st.DrawFn) -> str:
    return draw(st.sampled_from(["", "", " ", "\n\t", "\r\n"]))


def _spell_char(draw: st.DrawFn, char: str) -> str:
    escaped = json.dumps(char)[1:-1]
    units = char.encode("utf-16-be")
    numeric = "".join(f"\\u{units[i]:02x}{units[i + 1]:02X}" for i in range(0, len(units), 2))
    forms = [escaped, numeric]
    if char == "/":
        forms.append("\\/")
    if char >= " " and char not in '"\\':
        forms += [char, char]
    return draw(st.sampled_from(forms))


REAL_BODIES: tuple[dict[str, Any], ...] = (
    {
        "model": "jev-latest",
        "state": "I was charged twice for order 5512 and want one of the payments back.",
        "questions": {
            "refund": {"type": "noul", "instructions": "Does the customer ask for a refund?"},
            "team": {
                "type": "choice",
                "instructions": "Who should answer?",
                "criteria": {
                    "Billing": "charges and invoices",
                    "Technical": None,
                    "환불 요청": {"note": "refunds"},
                },
            },
            "tone": {"type": "score", "criteria": ["calm", "annoyed", {"label": "furious"}]},
        },
    },
    {
        "model": "jev-latest",
        "state": {"ticket": 7, "text": "Déjà vu: 🎯 again", "tags": ["a", "b"], "paid": True, "amount": 12.5},
        "questions": {"q": {"type": "noul", "criteria": {"true": "it is about money", "false": ["else"]}}},
        "x_nonce": 7,
    },
    {
        "model": "jev-latest",
        "state": ["first message", "second message"],
        "questions": {
            "질문": {"type": "choice", "criteria": {"": None, "only": ""}, "instructions": {"ask": "which"}}
        },
    },
)


@st.composite
def damaged_bytes(draw: st.DrawFn) -> bytes:
    """A real body with flipped bits, a cut, or a piece of another body spliced in."""
    body = bytearray(json.dumps(draw(st.sampled_from(REAL_BODIES)), ensure_ascii=False).encode())
    for _ in range(draw(st.integers(1, 6))):
        where = draw(st.integers(0, len(body) - 1)) if body else 0
        kind = draw(st.sampled_from(["flip", "cut", "splice", "repeat", "insert"]))
        if kind == "flip" and body:
            body[where] ^= 1 << draw(st.integers(0, 7))
        elif kind == "cut":
            del body[where : where + draw(st.integers(1, 60))]
        elif kind == "splice":
            donor = json.dumps(draw(st.sampled_from(REAL_BODIES))).encode()
            body[where:where] = donor[draw(st.integers(0, len(donor) - 1)) :][: draw(st.integers(1, 80))]
        elif kind == "repeat":
            body[where:where] = body[where : where + draw(st.integers(1, 40))]
        else:
            body[where:where] = draw(st.sampled_from(POISONS))
    return bytes(body)


POISONS = (
    *(b"NaN", b"1e999", b"-Infinity", b"-0", b"18446744073709551616", b"9" * 400),
    *(b'"\\ud800"', b"\xff", b"\xed\xa0\x80", b"\xef\xbb\xbf", b"\x00"),
    *(b"[" * 70, b'{"a":' * 70, b'"', b"\\", b"}", b"]", b",", b'"model":"x",'),
)


@st.composite
def mutated_trees(draw: st.DrawFn) -> Any:
    """A real body's JSON tree in which some values were replaced, removed, renamed or nested."""
    tree = json.loads(json.dumps(draw(st.sampled_from(REAL_BODIES))))
    for _ in range(draw(st.integers(1, 4))):
        tree = _mutate(draw, tree)
    return tree


def _mutate(draw: st.DrawFn, node: Any) -> Any:
    if isinstance(node, dict | list) and node and draw(st.integers(0, 4)):
        at = draw(st.sampled_from(sorted(node) if isinstance(node, dict) else range(len(node))))
        if not draw(st.integers(0, 5)):
            del node[at]
        elif isinstance(node, dict) and not draw(st.integers(0, 5)):
            node[draw(NAMES)] = node.pop(at)
        else:
            node[at] = _mutate(draw, node[at])
        return node
    others = st.one_of(
        JSON_VALUES, st.just([node]), st.just({"type": node}), st.just(str(node)), WRONG_SHAPES
    )
    return deepcopy(draw(others))  # it may be changed again, and the pools must not be


WRONG_SHAPES = st.sampled_from(
    [
        "noul",
        "choice",
        "score",
        "box",
        {"type": "noul"},
        {"type": "score", "criteria": []},
        [None],
        {"true": 1},
        2**80,
    ]
)
