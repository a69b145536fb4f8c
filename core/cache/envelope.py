"""The bytes of a stored decision.

    magic 2 | version 1 | flags 1 | key 16 | tenant digest 8
    | stored 8 | expires 8 | last expiry 8 (each in ms since 1970)
    | epoch 8 | length of the head 4 | length of head and answers 4 | CRC-32 of all the rest 4
    | head | answers

The key and the tenant are repeated so that a reply meant for somebody else is recognised. The head is a
compact JSON array; the answers are the response's, byte for byte. Both are compressed where that pays.

Reading is total: whatever bytes a store returns, `decode` gives a decision or says what they are instead.
"""

import struct
import zlib
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from hashlib import blake2b
from typing import Any, Final

import orjson
from backports import zstd

from core.cache.decision import Decision

MAGIC: Final = b"\xd3p"
VERSION: Final = 1
MAX_BYTES: Final = 4 * 2**20  # of head and answers; 512 questions with 255 options each stay below it
COMPRESS_FROM_BYTES: Final = 512  # below it, undoing the compression costs more than the bytes are worth

_HEADER: Final = struct.Struct("<2sBB16s8sqqqQIII")
_CRC_BYTES: Final = 4
_NEVER: Final = 2**63 - 1
_COMPRESSED: Final = 1
_MAX_WINDOW_LOG: Final = 23  # a frame that asks for more memory than this is refused
_ZSTD: Final[dict[int, int]] = {
    zstd.CompressionParameter.compression_level: 3,
    zstd.CompressionParameter.content_size_flag: 0,
    zstd.CompressionParameter.checksum_flag: 0,
}


@dataclass(frozen=True, slots=True)
class Foreign:
    """A sound value of another key or tenant: a mixed-up reply, or a store with somebody else in it."""

    what: str  # "key" or "tenant"


@dataclass(frozen=True, slots=True)
class Corrupt:
    """Bytes that no version of this program wrote, or that changed since."""

    why: str


@dataclass(frozen=True, slots=True)
class Newer:
    """A value of a later format; its writer still reads it, so it is left alone."""

    version: int


Stored = Decision | Foreign | Corrupt | Newer


def encode(decision: Decision, tenant: str) -> bytes | None:
    """Write a decision; equal decisions give equal bytes. None when it is larger than `MAX_BYTES`.

    Times are kept to the millisecond. The margins must name the same questions as the answers.
    """
    margins = [decision.margins[question] for question in orjson.loads(decision.answers)]
    head = _write_head(decision, margins)
    body = head + decision.answers
    size = len(body)
    if size > MAX_BYTES:
        return None
    flags = 0
    if size >= COMPRESS_FROM_BYTES:
        packed = zstd.compress(body, options=_ZSTD)
        if len(packed) < size:
            flags, body = _COMPRESSED, packed
    header = _HEADER.pack(
        MAGIC,
        VERSION,
        flags,
        decision.key,
        _digest(tenant),
        _milliseconds(decision.stored_at),
        _milliseconds(decision.expires_at),
        _milliseconds(decision.last_expiry),
        decision.epoch,
        len(head),
        size,
        0,
    )[:-_CRC_BYTES]
    return header + zlib.crc32(body, zlib.crc32(header)).to_bytes(_CRC_BYTES, "little") + body


def decode(value: bytes, key: bytes, tenant: str) -> Stored:
    """Read what a store returned for `key`, asked on behalf of `tenant`."""
    try:
        return _decode(value, key, tenant)
    except (_NotSound, zstd.ZstdError, orjson.JSONDecodeError, struct.error) as error:
        return Corrupt(str(error))


class _NotSound(Exception):
    """Bytes that `encode` does not write."""


def _decode(value: bytes, key: bytes, tenant: str) -> Stored:
    if value[:2] != MAGIC or len(value) < 3:
        raise _NotSound("not a stored decision")
    if value[2] > VERSION:
        return Newer(value[2])
    _, version, flags, own_key, own_tenant, stored, expires, last, epoch, head_size, size, crc = (
        _HEADER.unpack_from(value)
    )
    body = value[_HEADER.size :]
    if zlib.crc32(body, zlib.crc32(value[: _HEADER.size - _CRC_BYTES])) != crc:
        raise _NotSound("the checksum does not match")
    if own_key != key:
        return Foreign("key")
    if own_tenant != _digest(tenant):
        return Foreign("tenant")
    if version != VERSION or flags & ~_COMPRESSED:
        raise _NotSound("unknown version or flags")
    plain = _decompress(body, size) if flags else body
    if len(plain) != size:
        raise _NotSound("the length does not match")
    answers = plain[head_size:]
    return Decision(
        key=key,
        answers=answers,
        stored_at=stored / 1000,
        expires_at=_seconds(expires),
        last_expiry=_seconds(last),
        epoch=epoch,
        **_read_head(plain[:head_size], _questions(answers)),
    )


def _write_head(decision: Decision, margins: list[float]) -> bytes:
    fields = [margins if name == "margins" else getattr(decision, name) for name, _ in _FIELDS]
    while len(fields) > 2 and not fields[-1]:  # most decisions have nothing to say in the last ones
        fields.pop()
    return orjson.dumps(fields)


def _read_head(head: bytes, questions: list[str]) -> dict[str, Any]:
    fields = orjson.loads(head)
    if not isinstance(fields, list) or not 2 <= len(fields) <= len(_FIELDS):
        raise _NotSound("the head has another shape")
    about = {}
    for (name, is_sound), field in zip(_FIELDS, fields, strict=False):
        if not is_sound(field):
            raise _NotSound(f"{name} is not what it should be")
        about[name] = tuple(field) if type(field) is list else field
    if len(about["margins"]) != len(questions):
        raise _NotSound("there is not one margin per question")
    about["margins"] = dict(zip(questions, about["margins"], strict=True))
    return about


def _questions(answers: bytes) -> list[str]:
    by_question = orjson.loads(answers)
    if not isinstance(by_question, dict) or not all(type(one) is dict for one in by_question.values()):
        raise _NotSound("the answers are no object of objects")
    return [*by_question]


def _is_text(value: object) -> bool:
    return type(value) is str


def _is_count(value: object) -> bool:
    return type(value) is int and value >= 0


def _are_margins(value: object) -> bool:
    return type(value) is list and all(type(m) in (float, int) and 0.0 <= m <= 1.0 for m in value)


def _are_names(value: object) -> bool:
    return type(value) is list and all(type(name) is str for name in value)


def _is_text_by_name(value: object) -> bool:
    return type(value) is dict and all(type(text) is str for text in value.values())


_FIELDS: Final[tuple[tuple[str, Callable[[object], bool]], ...]] = (
    ("model", _is_text),
    ("margins", _are_margins),
    ("input_tokens", _is_count),
    ("output_tokens", _is_count),
    ("truncated", _are_names),
    ("tasks", _are_names),
    ("table_versions", _are_names),
    ("answered_by", _is_text_by_name),
)


def _decompress(packed: bytes, size: int) -> bytes:
    if size > MAX_BYTES:
        raise _NotSound("larger than a decision may be")
    options: dict[int, int] = {zstd.DecompressionParameter.window_log_max: _MAX_WINDOW_LOG}
    decompressor = zstd.ZstdDecompressor(options=options)
    plain = decompressor.decompress(packed, max_length=size + 1)  # one more, to see that there is no more
    if not decompressor.eof or decompressor.unused_data:
        raise _NotSound("compressed to another length")
    return plain


def _milliseconds(seconds: float | None) -> int:
    return _NEVER if seconds is None else round(seconds * 1000)


def _seconds(milliseconds: int) -> float | None:
    return None if milliseconds == _NEVER else milliseconds / 1000


@lru_cache(maxsize=4096)
def _digest(tenant: str) -> bytes:
    return blake2b(tenant.encode(), digest_size=8).digest()
