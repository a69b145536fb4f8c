"""Read a request's body, with every limit applied while it arrives and while it is decompressed."""

import asyncio
import sys
import zlib
from collections.abc import Awaitable, Callable, MutableMapping
from dataclasses import dataclass
from typing import Any, Protocol

from core.errors import BodyTooLarge, BodyTooSlow, ClientLeft, UnsupportedEncoding

if sys.version_info >= (3, 14):
    from compression import zstd
else:
    from backports import zstd

Receive = Callable[[], Awaitable[MutableMapping[str, Any]]]

_ZSTD_MAX_WINDOW_LOG = 23  # 8 MiB: what RFC 8878 asks every decoder to support, and no more
_MAX_MEMBERS = 64  # each costs a copy of what follows it: a body of empty ones would take minutes


@dataclass(frozen=True, slots=True)
class BodyLimits:
    """How large a body may be, as sent and once decompressed, and how long it may take to arrive."""

    max_bytes: int
    receive_s: float


async def read_body(receive: Receive, encoding: bytes, limits: BodyLimits) -> bytes:
    """Receive a body and undo its content encoding.

    Args:
        receive: the ASGI channel.
        encoding: the Content-Encoding header in lower case; empty when absent.
        limits: applied to the bytes on the wire and to the result alike.

    Raises:
        BodyTooLarge, BodyTooSlow, UnsupportedEncoding: the limits, and what cannot be undone.
        ClientLeft: the connection closed before the body was whole.
    """
    try:
        async with asyncio.timeout(limits.receive_s):
            body = await _receive(receive, limits.max_bytes)
    except TimeoutError:
        raise BodyTooSlow(limits.receive_s) from None
    return decompress(body, encoding, limits.max_bytes) if encoding else body


async def _receive(receive: Receive, max_bytes: int) -> bytes:
    chunks: list[bytes] = []
    size = 0
    while True:
        message = await receive()
        if message["type"] == "http.disconnect":
            raise ClientLeft
        chunk = message.get("body", b"")
        size += len(chunk)
        if size > max_bytes:
            raise BodyTooLarge(max_bytes)
        chunks.append(chunk)
        if not message.get("more_body"):
            return b"".join(chunks)


def decompress(body: bytes, encoding: bytes, max_bytes: int) -> bytes:
    """Undo a content encoding without ever holding more than `max_bytes` of the result.

    Raises:
        UnsupportedEncoding: an encoding other than zstd, gzip and identity, or bytes that do not match it.
        BodyTooLarge: the result is larger than `max_bytes`.
    """
    if encoding == b"identity":
        return body
    decompressor = _DECOMPRESSORS.get(encoding)
    if decompressor is None:
        raise UnsupportedEncoding("this Content-Encoding is not supported")
    try:
        return _undo(body, decompressor, max_bytes)
    except (zstd.ZstdError, zlib.error, EOFError):
        raise UnsupportedEncoding("the body is not what its Content-Encoding says") from None


def _undo(body: bytes, decompressor: Callable[[], "_Decompressor"], max_bytes: int) -> bytes:
    whole = bytearray()
    members = 0
    while body:  # RFC 1952 and RFC 8878: a body is a series of members, or frames
        members += 1
        if members > _MAX_MEMBERS:
            raise UnsupportedEncoding(f"the body has more than {_MAX_MEMBERS} compressed parts")
        member = decompressor()
        whole += member.decompress(body, max_bytes + 1 - len(whole))
        if len(whole) > max_bytes:
            raise BodyTooLarge(max_bytes)
        if not member.eof:
            raise EOFError
        body = member.unused_data
    return bytes(whole)


class _Decompressor(Protocol):
    @property
    def eof(self) -> bool: ...
    @property
    def unused_data(self) -> bytes: ...
    def decompress(self, data: bytes, max_length: int, /) -> bytes: ...


def _zstd_frame() -> _Decompressor:
    return zstd.ZstdDecompressor(options={zstd.DecompressionParameter.window_log_max: _ZSTD_MAX_WINDOW_LOG})


def _gzip_member() -> _Decompressor:
    return zlib.decompressobj(16 + zlib.MAX_WBITS)


_DECOMPRESSORS: dict[bytes, Callable[[], _Decompressor]] = {
    b"zstd": _zstd_frame,
    b"gzip": _gzip_member,
    b"x-gzip": _gzip_member,
}
