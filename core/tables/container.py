"""Arrays and a few words about them as one value of bytes, readable without copying.

The form is that of safetensors: eight bytes of header length, a JSON header, and the raw numbers in
little-endian order. The library writes it; it is read here, because the library copies what it reads.
"""

import json
import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from core.errors import ArtefactMismatch

MAX_HEADER_BYTES: Final = 100_000_000  # the library's own limit

_DTYPES: Final = {
    "F64": "<f8",
    "F32": "<f4",
    "F16": "<f2",
    "I64": "<i8",
    "I32": "<i4",
    "I16": "<i2",
    "I8": "i1",
    "U64": "<u8",
    "U32": "<u4",
    "U16": "<u2",
    "U8": "u1",
    "BOOL": "?",
}
_LENGTH_BYTES: Final = 8
_METADATA: Final = "__metadata__"

Array = npt.NDArray[Any]
Contents = tuple[dict[str, Array], dict[str, str]]  # arrays by name, metadata


def write(arrays: Mapping[str, Array], metadata: Mapping[str, str]) -> bytes:
    """Write arrays; equal arrays and metadata give equal bytes, whatever their order."""
    from safetensors.numpy import save  # noqa: PLC0415  whoever only reads does not need it

    plain = save({name: np.ascontiguousarray(arrays[name]) for name in sorted(arrays)})
    start = _LENGTH_BYTES + int.from_bytes(plain[:_LENGTH_BYTES], "little")
    # The library writes metadata in an order of chance.
    header = {_METADATA: dict(sorted(metadata.items())), **json.loads(plain[_LENGTH_BYTES:start])}
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-len(text) % _LENGTH_BYTES)  # so that the arrays stay aligned
    return len(text).to_bytes(_LENGTH_BYTES, "little") + text + plain[start:]


def read(data: bytes | bytearray | memoryview) -> Contents:
    """Read what `write` wrote: read-only views of `data`, and the metadata.

    An array that does not stand at a multiple of its item's size in memory is copied, since sums over it
    would be slow; `write` leaves none such.

    Raises:
        ArtefactMismatch: other bytes.
    """
    try:
        return _read(memoryview(data).cast("B").toreadonly())
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError, OverflowError) as error:
        raise ArtefactMismatch(
            "a container of arrays", "a safetensors header", f"none ({error})", "make it again"
        ) from None


def open_file(path: Path) -> Contents:
    """Read a file through a read-only memory map: the processes of a node share its pages.

    The map lives as long as an array of it. The file may be deleted meanwhile, but must not be written to.

    Raises:
        ArtefactMismatch: another kind of file.
        OSError: it cannot be opened.
    """
    if path.stat().st_size == 0:
        return read(b"")  # an empty file cannot be mapped
    return read(np.memmap(path, np.uint8, mode="r").data)


def _read(data: memoryview) -> Contents:
    length = int.from_bytes(data[:_LENGTH_BYTES], "little")
    start = _LENGTH_BYTES + length
    if length > MAX_HEADER_BYTES or len(data) < max(start, _LENGTH_BYTES):
        raise ValueError("shorter than its header")
    header = json.loads(bytes(data[_LENGTH_BYTES:start]))
    metadata = header.pop(_METADATA, {})
    if not all(isinstance(value, str) for value in metadata.values()):
        raise ValueError("metadata that is no text")
    numbers = data[start:]
    return {name: _array(name, about, numbers) for name, about in header.items()}, metadata


def _array(name: str, about: dict[str, Any], numbers: memoryview) -> Array:
    first, last = about["data_offsets"]
    shape, dtype = tuple(about["shape"]), np.dtype(_DTYPES[about["dtype"]])
    if not all(type(number) is int and number >= 0 for number in (first, last, *shape)):
        raise ValueError(f"{name} has a size that is none")
    if not first <= last <= len(numbers) or math.prod(shape) * dtype.itemsize != last - first:
        raise ValueError(f"{name} lies outside, or is not as long as its shape")
    array: Array = np.frombuffer(numbers[first:last], dtype).reshape(shape)
    if not array.flags.aligned:
        array = array.copy()
    array.flags.writeable = False
    return array
