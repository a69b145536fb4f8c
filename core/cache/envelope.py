"""The bytes of a stored decision.

    magic 2 | version 1 | flags 1 | key 16 | tenant digest 8
    | stored 8 | expires 8 | last expiry 8 (each in ms since 1970)
    | epoch 8 | length of the head 4 | length of head and answers 4
    | head | answers | CRC-32 of all before it 4

The key and the tenant are repeated so that a reply meant for somebody else is recognised. The head is a
compact JSON array; the answers are the response's, byte for byte. Both are compressed where that pays.

Reading is total: whatever bytes a store returns, `decode` gives a decision or says what they are instead. The
answers themselves are not parsed for that, which would cost as much as all the rest: the checksum says that
they are as they were written, and `core.cache.shape` whether they answer a request.
"""

import struct
import zlib
from dataclasses import dataclass
from functools import lru_cache
from hashlib import blake2b
from typing import Any, Final

import orjson

from core.cache.decision import Decision

MAGIC: Final = b"\xd3p"
VERSION: Final = 1
MAX_BYTES: Final = 4 * 2**20  # of head and answers; 512 questions with 255 options each stay below it
COMPRESS_FROM_BYTES: Final = 512  # below it, undoing the compression costs more than the bytes are worth

_HEADER: Final = struct.Struct("<2sBB16s8sqqqQII")
_CRC_BYTES: Final = 4
_CRC_RESIDUE: Final = 0x2144DF1C  # the CRC-32 of anything followed by its own CRC-32
_NEVER: Final = 2**63 - 1
_COMPRESSED: Final = 1
_RAW: Final = -zlib.MAX_WBITS  # deflate without a wrapper: the checksum is ours


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
        packed = zlib.compress(body, wbits=_RAW)
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
    )
    value = header + body
    return value + zlib.crc32(value).to_bytes(_CRC_BYTES, "little")


def decode(value: bytes, key: bytes, tenant: str) -> Stored:
    """Read what a store returned for `key`, asked on behalf of `tenant`."""
    try:
        return _decode(value, key, tenant)
    except (_NotSound, zlib.error, orjson.JSONDecodeError, struct.error) as error:
        return Corrupt(str(error))


class _NotSound(Exception):
    """Bytes that `encode` does not write."""


def _decode(value: bytes, key: bytes, tenant: str) -> Stored:
    if value[:2] != MAGIC or len(value) < 3:
        raise _NotSound("not a stored decision")
    if value[2] > VERSION:
        return Newer(value[2])
    if zlib.crc32(value) != _CRC_RESIDUE:
        raise _NotSound("the checksum does not match")
    _, version, flags, own_key, own_tenant, stored, expires, last, epoch, head_size, size = (
        _HEADER.unpack_from(value)
    )
    if own_key != key:
        return Foreign("key")
    if own_tenant != _digest(tenant):
        return Foreign("tenant")
    if version != VERSION or flags & ~_COMPRESSED:
        raise _NotSound("unknown version or flags")
    body = value[_HEADER.size : -_CRC_BYTES]
    plain = _decompress(body, size) if flags else body
    if len(plain) != size:
        raise _NotSound("the length does not match")
    fields = _read_head(plain[:head_size])
    fields["key"] = key
    fields["answers"] = plain[head_size:]
    fields["stored_at"] = stored / 1000
    fields["expires_at"] = None if expires == _NEVER else expires / 1000
    fields["last_expiry"] = None if last == _NEVER else last / 1000
    fields["epoch"] = epoch
    return Decision.of(fields)


def _write_head(decision: Decision) -> bytes:
    fields = [getattr(decision, name) for name in _HEAD]
    while len(fields) > 2 and not fields[-1]:  # most decisions have nothing to say in the last ones
        fields.pop()
    return orjson.dumps(fields)


def _read_head(head: bytes) -> dict[str, Any]:
    given = orjson.loads(head)
    if type(given) is not list or len(given) < 2 or tuple(map(type, given)) != _KINDS[: len(given)]:
        raise _NotSound("the head has another shape")
    fields: dict[str, Any] = _BLANK.copy()
    fields["answered_by"] = {}
    fields.update(zip(_HEAD, given, strict=False))
    for margin in given[1].values():
        if type(margin) not in (float, int) or not 0.0 <= margin <= 1.0:
            raise _NotSound("a margin outside [0, 1]")
    if fields["input_tokens"] < 0 or fields["output_tokens"] < 0:
        raise _NotSound("fewer than no tokens")
    if len(given) > _PLAIN:
        _check_texts(given[_PLAIN:])
        fields.update((name, tuple(fields[name])) for name in _HEAD[_PLAIN:-1])
    return fields


def _check_texts(groups: list[list[object] | dict[str, object]]) -> None:
    for group in groups:
        texts = group.values() if isinstance(group, dict) else group
        if not all(type(text) is str for text in texts):
            raise _NotSound("a name that is no text")


# The fields of the head, in their order there, with their JSON types; what is empty is left out at the end.
_HEAD: Final = (
    "model",
    "margins",
    "input_tokens",
    "output_tokens",
    "truncated",
    "tasks",
    "table_versions",
    "answered_by",
)
_KINDS: Final = (str, dict, int, int, list, list, list, dict)
_PLAIN: Final = 4  # so many come before those that hold texts
_BLANK: Final[dict[str, Any]] = {
    "input_tokens": 0,
    "output_tokens": 0,
    "truncated": (),
    "tasks": (),
    "table_versions": (),
}


def _decompress(packed: bytes, size: int) -> bytes:
    if size > MAX_BYTES:
        raise _NotSound("larger than a decision may be")
    inflate = zlib.decompressobj(_RAW)
    plain = inflate.decompress(packed, size + 1)  # one more, to see that there is no more
    if not inflate.eof or inflate.unused_data:
        raise _NotSound("compressed to another length")
    return plain


def _milliseconds(seconds: float | None) -> int:
    return _NEVER if seconds is None else round(seconds * 1000)


@lru_cache(maxsize=4096)
def _digest(tenant: str) -> bytes:
    return blake2b(tenant.encode(), digest_size=8).digest()
