"""A body arrives whole, in time and within its limits, or not at all; decompression has the same limits."""

import asyncio
import gzip
import sys
import zlib
from collections.abc import Callable, Iterable, MutableMapping
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from core.errors import BodyTooLarge, BodyTooSlow, ClientLeft, UnsupportedEncoding
from deployments.bodies import BodyLimits, decompress, read_body

if sys.version_info >= (3, 14):
    from compression import zstd
else:
    from backports import zstd

LIMIT = 10_000
LIMITS = BodyLimits(max_bytes=LIMIT, receive_s=60.0)
TEXT = b'{"state":"' + b"The parcel came late. " * 100 + b'"}'


class Wire:
    """An ASGI receive channel that delivers chunks and counts how many were taken."""

    def __init__(self, chunks: Iterable[bytes], *, then: str = "end") -> None:
        self._chunks = list(chunks)
        self._then = then
        self.taken = 0

    async def __call__(self) -> MutableMapping[str, Any]:
        if self.taken < len(self._chunks):
            self.taken += 1
            last = self.taken == len(self._chunks) and self._then == "end"
            return {"type": "http.request", "body": self._chunks[self.taken - 1], "more_body": not last}
        if self._then == "hang":
            await asyncio.Event().wait()
        return {"type": "http.disconnect"}


class TestReceiving:
    @pytest.mark.parametrize("chunks", [[TEXT], [b""], [TEXT[:5], b"", TEXT[5:]], [bytes([c]) for c in TEXT]])
    async def test_chunks_are_put_together(self, chunks):
        assert await read_body(Wire(chunks), b"", LIMITS) == b"".join(chunks)

    async def test_a_message_without_a_body_is_an_empty_chunk(self):
        async def receive() -> MutableMapping[str, Any]:
            return {"type": "http.request"}

        assert await read_body(receive, b"", LIMITS) == b""

    @pytest.mark.parametrize("chunks", [[b"x" * LIMIT], [b"x" * (LIMIT - 1), b"x"]])
    async def test_a_body_may_be_as_long_as_the_limit(self, chunks):
        assert len(await read_body(Wire(chunks), b"", LIMITS)) == LIMIT

    async def test_a_longer_body_is_refused_as_soon_as_that_is_known(self):
        wire = Wire([b"x" * LIMIT, b"x", b"never taken"])

        with pytest.raises(BodyTooLarge, match="more than 10000 bytes"):
            await read_body(wire, b"", LIMITS)

        assert wire.taken == 2

    @pytest.mark.parametrize("chunks", [[], [b'{"half":']])
    async def test_a_client_that_leaves_midway_is_no_body(self, chunks):
        with pytest.raises(ClientLeft):
            await read_body(Wire(chunks, then="leave"), b"", LIMITS)

    @pytest.mark.parametrize("chunks", [[], [b'{"half":']])
    async def test_a_body_that_does_not_arrive_in_time_is_refused(self, chunks):
        with pytest.raises(BodyTooSlow, match=r"within 0\.01 s"):
            await read_body(Wire(chunks, then="hang"), b"", BodyLimits(LIMIT, receive_s=0.01))

    async def test_a_cancelled_handler_stays_cancelled(self):
        reading = asyncio.create_task(read_body(Wire([], then="hang"), b"", LIMITS))
        await asyncio.sleep(0)

        reading.cancel()

        with pytest.raises(asyncio.CancelledError):
            await reading

    async def test_the_limit_counts_what_travels_also_when_it_is_compressed(self):
        with pytest.raises(BodyTooLarge):
            await read_body(Wire([b"\x00" * (LIMIT + 1)]), b"zstd", LIMITS)

    async def test_a_compressed_body_is_undone(self):
        packed = zstd.compress(TEXT)

        assert await read_body(Wire([packed[:10], packed[10:]]), b"zstd", LIMITS) == TEXT


PACK: dict[bytes, Callable[[bytes], bytes]] = {
    b"zstd": zstd.compress,
    b"gzip": gzip.compress,
    b"x-gzip": gzip.compress,
}


@pytest.mark.parametrize("encoding", PACK, ids=bytes.decode)
class TestDecompression:
    @pytest.mark.parametrize("plain", [b"", b"x", TEXT, b"x" * LIMIT])
    def test_undoes_what_the_encoding_says(self, encoding, plain):
        assert decompress(PACK[encoding](plain), encoding, LIMIT) == plain

    def test_of_nothing_is_nothing(self, encoding):
        assert decompress(b"", encoding, LIMIT) == b""

    @pytest.mark.parametrize("size", [LIMIT + 1, 2 * LIMIT, 100_000_000])
    def test_stops_at_the_limit(self, encoding, size):
        with pytest.raises(BodyTooLarge):
            decompress(PACK[encoding](b"\x00" * size), encoding, LIMIT)

    @pytest.mark.parametrize("parts", [1, 2, 3, 64])
    def test_undoes_parts_one_after_another_as_one_body(self, encoding, parts):
        packed = b"".join(PACK[encoding](b"part %d " % i) for i in range(parts))

        assert decompress(packed, encoding, LIMIT) == b"".join(b"part %d " % i for i in range(parts))

    def test_the_limit_counts_all_parts_together(self, encoding):
        half = PACK[encoding](b"x" * (LIMIT // 2))

        assert len(decompress(half * 2, encoding, LIMIT)) == LIMIT
        with pytest.raises(BodyTooLarge):
            decompress(half * 2 + PACK[encoding](b"x"), encoding, LIMIT)

    def test_a_body_of_many_empty_parts_is_refused_before_it_costs_anything(self, encoding):
        with pytest.raises(UnsupportedEncoding, match="more than 64 compressed parts"):
            decompress(PACK[encoding](b"") * 100_000, encoding, LIMIT)

    @pytest.mark.parametrize("cut", [1, 4, 20, -1, -5])
    def test_a_truncated_body_is_refused(self, encoding, cut):
        with pytest.raises(UnsupportedEncoding, match="not what its Content-Encoding says"):
            decompress(PACK[encoding](TEXT)[:cut], encoding, LIMIT)

    @pytest.mark.parametrize("junk", [b"\x00", b"trailing", TEXT])
    def test_junk_after_the_body_is_refused(self, encoding, junk):
        with pytest.raises(UnsupportedEncoding):
            decompress(PACK[encoding](TEXT) + junk, encoding, LIMIT)

    @pytest.mark.parametrize("body", [TEXT, b"{}", b"\x28\xb5\x2f\xfd", b"\x1f\x8b", zlib.compress(TEXT)])
    def test_bytes_that_are_something_else_are_refused(self, encoding, body):
        with pytest.raises(UnsupportedEncoding):
            decompress(body, encoding, LIMIT)

    @given(st.data())
    def test_a_damaged_body_is_refused_or_undone_and_nothing_else(self, encoding, data):
        packed = bytearray(PACK[encoding](TEXT))
        for _ in range(data.draw(st.integers(1, 4))):
            packed[data.draw(st.integers(0, len(packed) - 1))] ^= 1 << data.draw(st.integers(0, 7))

        try:
            plain = decompress(bytes(packed), encoding, LIMIT)
        except (UnsupportedEncoding, BodyTooLarge):
            return
        assert len(plain) <= LIMIT


def test_a_damaged_checksum_is_refused():
    checked = zstd.compress(TEXT, options={zstd.CompressionParameter.checksum_flag: 1})

    for packed, encoding in ((checked, b"zstd"), (gzip.compress(TEXT)[:-4], b"gzip")):
        damaged = packed[:-1] + bytes([packed[-1] ^ 1])
        with pytest.raises(UnsupportedEncoding):
            decompress(damaged, encoding, LIMIT)


def test_a_window_larger_than_a_decoder_must_support_is_refused():
    options: dict[int, int] = {
        zstd.CompressionParameter.window_log: 27,
        zstd.CompressionParameter.compression_level: 19,
    }
    packing = zstd.ZstdCompressor(options=options)
    packed = packing.compress(TEXT) + packing.flush()

    with pytest.raises(UnsupportedEncoding):
        decompress(packed, b"zstd", LIMIT)


@pytest.mark.parametrize("level", [1, 3, 19])
def test_frames_of_any_level_and_without_a_stated_size_are_undone(level):
    packing = zstd.ZstdCompressor(level=level)

    assert decompress(packing.compress(TEXT) + packing.flush(), b"zstd", LIMIT) == TEXT


def test_the_identity_encoding_changes_nothing():
    assert decompress(TEXT, b"identity", LIMIT) == TEXT


@pytest.mark.parametrize(
    "encoding", [b"br", b"deflate", b"compress", b"zstd, gzip", b"gzip,gzip", b"*", b"\xff", b"ZSTD"]
)
def test_any_other_encoding_is_refused(encoding):
    with pytest.raises(UnsupportedEncoding, match="send the body as zstd, gzip or identity"):
        decompress(TEXT, encoding, LIMIT)
