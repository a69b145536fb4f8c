"""The bytes of a stored decision.

    magic 2 | version 1 | flags 1 | key 16 | tenant digest 8
    | stored 8 | expires 8 | last expiry 8 (each in ms since 1970)
    | epoch 8 | length of the head 4 | length of head and answers 4 | CRC-32 of all the rest 4
    | head | answers

The key and the tenant are repeated so that a reply meant for somebody else is recognised. The head is a
compact JSON array; the answers are the response's, byte for byte. Both are compressed where that pays.

Reading is total: whatever bytes a store returns, `decode` gives a decision or says what they are instead. The
answers themselves are not parsed for that, which would cost as much as all the rest: the checksum says that
they are as they were written, and `core.cache.shape` whether they answer a request.
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

    Times are kept to the millisecond.
    """
    head = _write_head(decision)
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
    fields = _read_head(plain[:head_size])
    fields["key"] = key
    fields["answers"] = plain[head_size:]
    fields["stored_at"] = stored / 1000
    fields["expires_at"] = _seconds(expires)
    fields["last_expiry"] = _seconds(last)
    fields["epoch"] = epoch
    return Decision.of(fields)


def _write_head(decision: Decision) -> bytes:
    fields = [getattr(decision, name) for name, _, _ in _FIELDS]
    while len(fields) > 2 and not fields[-1]:  # most decisions have nothing to say in the last ones
        fields.pop()
    return orjson.dumps(fields)


def _read_head(head: bytes) -> dict[str, Any]:
    given = orjson.loads(head)
    if type(given) is not list or not 2 <= len(given) <= len(_FIELDS):
        raise _NotSound("the head has another shape")
    fields = {name: default() for name, _, default in _FIELDS[len(given) :]}
    for (name, is_sound, _), field in zip(_FIELDS, given, strict=False):
        if not is_sound(field):
            raise _NotSound(f"{name} is not what it should be")
        fields[name] = tuple(field) if type(field) is list else field
    return fields


def _is_text(value: object) -> bool:
    return type(value) is str


def _is_count(value: object) -> bool:
    return type(value) is int and value >= 0


def _are_margins(value: object) -> bool:
    if type(value) is not dict:
        return False
    for margin in value.values():
        if type(margin) not in (float, int) or not 0.0 <= margin <= 1.0:
            return False
    return True


def _are_names(value: object) -> bool:
    return type(value) is list and all(type(name) is str for name in value)


def _is_text_by_name(value: object) -> bool:
    return type(value) is dict and all(type(text) is str for text in value.values())


# Name, check and default of each field of the head, in their order there.
_FIELDS: Final[tuple[tuple[str, Callable[[object], bool], Callable[[], object]], ...]] = (
    ("model", _is_text, str),
    ("margins", _are_margins, dict),
    ("input_tokens", _is_count, int),
    ("output_tokens", _is_count, int),
    ("truncated", _are_names, tuple),
    ("tasks", _are_names, tuple),
    ("table_versions", _are_names, tuple),
    ("answered_by", _is_text_by_name, dict),
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
