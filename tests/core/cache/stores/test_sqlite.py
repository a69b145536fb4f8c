"""What only a file can suffer: other processes, kills, locks, full and read-only disks."""

import asyncio
import os
import shutil
import signal
import sqlite3
import stat
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

from core.cache.stores.base import FenceTable
from core.cache.stores.sqlite import SqliteStore
from core.errors import StoreUnavailable

NOW = 1_700_000_000.0
K1, K2 = b"1" * 16, b"2" * 16

WRITER = """
import asyncio, sys
from pathlib import Path
from core.cache.stores.sqlite import SqliteStore

async def write(path, first, count):
    store = SqliteStore(Path(path), patience_s=20.0)
    for number in range(int(first), int(first) + int(count)):
        await store.add(number.to_bytes(16, "big"), b"value %d" % number, None, 0.0)
        print(number, flush=True)
    await store.close()

asyncio.run(write(*sys.argv[1:]))
"""

FULL_DISK = """
import asyncio, resource, signal, sys
from pathlib import Path
from core.cache.stores.sqlite import SqliteStore
from core.errors import StoreUnavailable

async def fill(path):
    store = SqliteStore(Path(path))
    await store.add(b"1" * 16, b"value", None, 0.0)
    resource.setrlimit(resource.RLIMIT_FSIZE, (100_000, 100_000))  # no file may grow beyond
    signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    refused = 0
    for number in range(100):
        try:
            await store.add(number.to_bytes(16, "big"), b"x" * 5_000, None, 0.0)
        except StoreUnavailable:
            refused += 1
    assert 0 < refused < 100, refused
    assert await store.get_many([b"1" * 16], 0.0) == {b"1" * 16: b"value"}
    resource.setrlimit(resource.RLIMIT_FSIZE, (100_000, 100_000))
    print("hits still work")

asyncio.run(fill(sys.argv[1]))
"""


def start(program: str, *arguments: object) -> subprocess.Popen[str]:
    command = [sys.executable, "-c", program, *map(str, arguments)]
    return subprocess.Popen(command, stdout=subprocess.PIPE, text=True, cwd=Path(__file__).parents[4])


@pytest.fixture
def path(tmp_path):
    return tmp_path / "decisions.sqlite"


@pytest.fixture
async def store(path):
    one = SqliteStore(path)
    yield one
    await one.close()


async def test_eight_processes_with_a_thousand_writes_each_lose_nothing(path):
    writers = [start(WRITER, path, first, 1_000) for first in range(0, 8_000, 1_000)]
    outputs = [await asyncio.to_thread(writer.communicate) for writer in writers]
    store = SqliteStore(path)
    keys = [number.to_bytes(16, "big") for number in range(8_000)]

    assert [writer.returncode for writer in writers] == [0] * 8
    assert all(output.count("\n") == 1_000 for output, _ in outputs)
    assert await store.get_many(keys, NOW) == {key: b"value %d" % n for n, key in enumerate(keys)}
    assert await store.count(NOW) == 8_000
    await store.close()


async def test_a_process_that_is_killed_while_it_writes_leaves_a_file_that_opens(path):
    writer = start(WRITER, path, 0, 1_000_000)
    assert writer.stdout is not None
    for _ in range(200):
        last = writer.stdout.readline()
    writer.send_signal(signal.SIGKILL)
    writer.communicate()
    store = SqliteStore(path)
    keys = [number.to_bytes(16, "big") for number in range(int(last) + 1)]

    assert len(await store.get_many(keys, NOW)) == len(keys) == 200
    assert await store.add(K1, b"value", None, NOW) == b"value"
    await store.close()
    with sqlite3.connect(path) as db:
        assert db.execute("PRAGMA integrity_check").fetchall() == [("ok",)]
    db.close()


async def test_stores_of_two_processes_agree_on_the_first_value(path, store):
    writer = start(WRITER, path, 7, 1)
    await asyncio.to_thread(writer.communicate)

    assert await store.add((7).to_bytes(16, "big"), b"second", None, NOW) == b"value 7"


async def test_a_file_that_another_process_is_writing_to_is_still_read(path, store):
    await store.add(K1, b"value", None, NOW)
    other = sqlite3.connect(path, isolation_level=None)
    other.execute("BEGIN EXCLUSIVE")

    with pytest.raises(StoreUnavailable, match="locked"):
        await store.add(K2, b"value", None, NOW)
    assert await store.get_many([K1], NOW) == {K1: b"value"}

    other.execute("ROLLBACK")
    other.close()
    assert await store.add(K2, b"value", None, NOW) == b"value"


async def test_a_reader_that_holds_on_to_the_past_disturbs_no_writer(path, store):
    await store.add(K1, b"value", None, NOW)
    other = sqlite3.connect(path, isolation_level=None)
    other.execute("BEGIN")
    other.execute("SELECT * FROM entry").fetchall()

    for number in range(100):
        await store.add(number.to_bytes(16, "big"), b"x" * 10_000, None, NOW)
    assert await store.count(NOW) == 101
    other.close()


async def test_a_write_waits_for_a_short_one_of_another_process(path):
    store = SqliteStore(path, patience_s=20.0)
    await store.add(K1, b"value", None, NOW)
    other = sqlite3.connect(path, isolation_level=None)
    other.execute("BEGIN IMMEDIATE")
    writing = asyncio.create_task(store.add(K2, b"value", None, NOW))
    await store.get_many([K1], NOW)
    other.execute("ROLLBACK")

    assert await writing == b"value"
    other.close()
    await store.close()


@pytest.fixture
def nobody():
    """An account for which permissions count, since they do not for the administrator."""
    if os.geteuid() != 0:
        yield
        return
    os.seteuid(65_534)
    yield
    os.seteuid(0)


@pytest.fixture
def folder(nobody):
    made = Path(tempfile.mkdtemp())
    yield made
    made.chmod(0o777)
    shutil.rmtree(made)


@pytest.mark.parametrize("mode", [0o777, 0o555], ids=["file", "file and folder"])
async def test_on_a_read_only_disk_hits_still_work(folder, mode):
    path = folder / "decisions.sqlite"
    writing = SqliteStore(path)
    await writing.add(K1, b"value", None, NOW)
    await writing.add_fence(b"scope", 0, ())
    await writing.close()
    path.chmod(0o444)
    folder.chmod(mode)
    store = SqliteStore(path)

    assert await store.get_many([K1, K2], NOW) == {K1: b"value"}
    assert await store.count(NOW) == 1
    assert await store.read_fences(FenceTable()) is not None
    for _ in range(2):
        with pytest.raises(StoreUnavailable):
            await store.add(K2, b"value", None, NOW)

    folder.chmod(0o777)
    for file in folder.iterdir():  # the log beside it as well
        file.chmod(0o666)
    assert await store.add(K2, b"value", None, NOW) == b"value"
    assert await store.get_many([K2], NOW) == {K2: b"value"}
    await store.close()


async def test_on_a_full_disk_hits_still_work(path):
    process = start(FULL_DISK, path)
    output, _ = await asyncio.to_thread(process.communicate)

    assert "hits still work" in output
    store = SqliteStore(path)
    assert await store.get_many([K1], NOW) == {K1: b"value"}
    assert await store.add(K2, b"value", None, NOW) == b"value"
    await store.close()


async def test_a_folder_that_does_not_exist_is_a_store_that_is_unavailable(tmp_path):
    store = SqliteStore(tmp_path / "absent" / "decisions.sqlite")

    with pytest.raises(StoreUnavailable, match="cannot be made"):
        await store.get_many([K1], NOW)
    await store.close()


async def test_a_file_that_was_unusable_is_used_once_it_is_there(tmp_path):
    store = SqliteStore(tmp_path / "absent" / "decisions.sqlite")
    with pytest.raises(StoreUnavailable):
        await store.add(K1, b"value", None, NOW)
    (tmp_path / "absent").mkdir()

    assert await store.add(K1, b"value", None, NOW) == b"value"
    await store.close()


async def test_the_file_of_another_program_is_left_alone(path, store):
    with sqlite3.connect(path) as db:
        db.execute("CREATE TABLE theirs (a)")
    db.close()
    before = path.read_bytes()

    with pytest.raises(StoreUnavailable, match="another program"):
        await store.add(K1, b"value", None, NOW)
    assert path.read_bytes() == before


async def test_a_file_that_is_no_database_is_left_alone(path, store):
    path.write_bytes(b"not a database at all" * 100)

    with pytest.raises(StoreUnavailable, match="not a database"):
        await store.get_many([K1], NOW)
    assert path.read_bytes() == b"not a database at all" * 100


async def test_a_file_of_a_later_format_is_left_alone(path, store):
    await store.add(K1, b"value", None, NOW)
    await store.close()
    with sqlite3.connect(path) as db:
        db.execute("PRAGMA user_version = 99")
    db.close()

    with pytest.raises(StoreUnavailable, match="format 99"):
        await store.get_many([K1], NOW)


async def test_only_the_owner_may_read_the_file(path, store):
    await store.add(K1, b"value", None, NOW)

    assert stat.S_IMODE(path.stat().st_mode) == 0o600


async def test_a_store_that_was_closed_opens_again_when_used(store):
    await store.add(K1, b"value", None, NOW)
    await store.close()

    assert await store.get_many([K1], NOW) == {K1: b"value"}


async def test_the_event_loop_runs_on_while_the_file_is_locked(path, store):
    await store.add(K1, b"value", None, NOW)
    other = sqlite3.connect(path, isolation_level=None)
    other.execute("BEGIN EXCLUSIVE")
    writing = asyncio.create_task(store.add(K2, b"value", None, NOW))
    turns = 0
    while not writing.done():
        turns += 1
        await asyncio.sleep(0)
    other.close()

    assert turns > 10
    with pytest.raises(StoreUnavailable):
        await writing


async def test_a_caller_that_leaves_does_not_disturb_the_next(store):
    leaving = asyncio.create_task(store.add(K1, b"value", None, NOW))
    await asyncio.sleep(0)
    leaving.cancel()

    assert await store.add(K1, b"other", None, NOW) == b"value"


async def test_the_bound_holds_across_stores_on_one_file(path):
    one, other = SqliteStore(path, max_entries=10), SqliteStore(path, max_entries=10)
    for number in range(30):
        await (one if number % 2 else other).add(number.to_bytes(16, "big"), b"value", None, NOW)

    assert await one.count(NOW) == 10
    await one.close()
    await other.close()


@pytest.mark.parametrize("replaced", [False, True])
async def test_a_file_that_is_removed_or_replaced_under_it_is_noticed(tmp_path, replaced):
    path = tmp_path / "decisions.db"
    store = SqliteStore(path)
    await store.add(K1, b"old", None, NOW)
    for file in tmp_path.iterdir():
        file.unlink()
    if replaced:
        other = SqliteStore(path)
        await other.add(K1, b"another's", None, NOW)
        await other.close()

    survivor = await store.add(K1, b"new", None, NOW)
    await store.close()

    assert survivor == (b"another's" if replaced else b"new")
    again = SqliteStore(path)
    assert await again.get_many([K1], NOW) == {K1: survivor}
    await again.close()
