import json
from contextlib import suppress

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from safetensors.numpy import load, save

from core.errors import ArtefactMismatch
from core.tables import container

DTYPES = ("f8", "f4", "f2", "i8", "i4", "i2", "i1", "u8", "u4", "u2", "u1", "?")
ARRAYS = {f"of {dtype}": np.arange(6).reshape(2, 3).astype(dtype) for dtype in DTYPES} | {
    "empty": np.zeros((0, 4), np.float32),
    "a number": np.array(3.5),
}


def header(about: object, numbers: bytes = b"") -> bytes:
    text = json.dumps(about).encode()
    return len(text).to_bytes(8, "little") + text + numbers


def test_arrays_and_metadata_come_back():
    arrays, metadata = container.read(container.write(ARRAYS, {"kind": "static"}))

    assert metadata == {"kind": "static"}
    assert arrays.keys() == ARRAYS.keys()
    for name, array in ARRAYS.items():
        assert arrays[name].dtype == array.dtype
        np.testing.assert_array_equal(arrays[name], array)


def test_the_library_reads_what_is_written_and_the_other_way_round():
    theirs = load(container.write(ARRAYS, {}))
    ours, _ = container.read(save(ARRAYS))

    for name, array in ARRAYS.items():
        np.testing.assert_array_equal(theirs[name], array)
        np.testing.assert_array_equal(ours[name], array)


def test_equal_contents_are_equal_bytes_whatever_their_order():
    words = {str(number): "x" for number in range(20)}
    shuffled = dict(reversed(words.items()))

    assert container.write(ARRAYS, words) == container.write(dict(reversed(ARRAYS.items())), shuffled)


def test_what_is_read_can_not_be_changed():
    arrays, _ = container.read(bytearray(container.write(ARRAYS, {})))

    with pytest.raises(ValueError, match="read-only"):
        arrays["of f4"][0, 0] = 1


def test_an_array_is_read_without_a_copy():
    data = container.write(ARRAYS, {})

    assert all(
        np.shares_memory(array, np.frombuffer(data, np.uint8))
        for name, array in container.read(data)[0].items()
        if array.size
    )


def test_a_file_that_is_deleted_is_read_on(tmp_path):
    path = tmp_path / "table"
    path.write_bytes(container.write(ARRAYS, {}))
    arrays, _ = container.open_file(path)
    path.unlink()

    np.testing.assert_array_equal(arrays["of f8"], ARRAYS["of f8"])


ONE = {"dtype": "F32", "shape": [1], "data_offsets": [0, 4]}


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"\x00" * 7,
        b"\xff" * 8,
        b"\x05" + b"\x00" * 7 + b"{}",
        header([]),
        header({"a": 1}),
        header({"a": ONE | {"dtype": "F13"}}, b"1234"),
        header({"a": ONE}, b"123"),
        header({"a": ONE | {"data_offsets": [0, 8]}}, b"12345678"),
        header({"a": ONE | {"data_offsets": [4, 0]}}, b"1234"),
        header({"a": ONE | {"data_offsets": [-4, 0]}}, b"1234"),
        header({"a": ONE | {"shape": [-1]}}, b"1234"),
        header({"a": ONE | {"shape": [1.0]}}, b"1234"),
        header({"a": ONE | {"shape": [True]}}, b"1234"),
        header({"a": {"dtype": "F32", "shape": [1]}}, b"1234"),
        header({"__metadata__": {"a": 1}}),
        header({"__metadata__": "a"}),
    ],
)
def test_other_bytes_are_refused(data, tmp_path):
    path = tmp_path / "other"
    path.write_bytes(data)

    with pytest.raises(ArtefactMismatch, match="make it again"):
        container.read(data)
    with pytest.raises(ArtefactMismatch, match="make it again"):
        container.open_file(path)


@given(st.integers(0, 500), st.integers(0, 255))
def test_a_changed_byte_is_refused_or_read_without_harm(place, value):
    data = bytearray(container.write({"a": np.arange(40, dtype=np.int16)}, {"kind": "static"}))
    data[place % len(data)] = value

    with suppress(ArtefactMismatch):
        container.read(bytes(data))


def test_an_array_at_an_odd_place_is_copied_to_an_even_one():
    about = {"a": ONE | {"data_offsets": [1, 5]}}
    pad = " " * (-len(json.dumps(about)) % 8)
    text = json.dumps(about).encode() + pad.encode()
    data = len(text).to_bytes(8, "little") + text + b"\x00" + np.float32(2.5).tobytes()

    array = container.read(data)[0]["a"]

    assert array.flags.aligned
    assert array.tolist() == [2.5]
