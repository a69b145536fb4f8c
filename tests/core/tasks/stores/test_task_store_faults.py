"""What task stores do when their server or their file fails, and what they leave behind."""

import asyncio
import contextlib
import os
import signal
import sqlite3
import subprocess
import sys
import time
from pathlib import Path

import pytest
from redis.crc import key_slot
from redis.exceptions import ResponseError

from core.errors import StoreUnavailable
from core.tasks.stores import open_task_store
from tests.core.cache.conftest import a_valkey  # noqa: F401  fixture
from tests.core.cache.servers import Server, valkey

NOW = 1_700_000_000.0
CHECKOUT = Path(__file__).resolve().parents[4]

WRITES_UNTIL_KILLED = """
import asyncio, sys
from core.tasks.stores import open_task_store
async def write():
    store = open_task_store(sys.argv[1])
    version = 0
    while True:
        await store.put_object("ab" * 16, bytes(100_000), 1.0)
        version = await store.put("acme", "support", b"%d" % version, version, 1.0, ["ab" * 16])
        print(version, flush=True)
asyncio.run(write())
"""


async def test_a_writer_that_is_killed_leaves_a_file_with_all_that_it_was_told_is_written(tmp_path):
    url = f"sqlite:///{tmp_path / 'decisions.db'}"
    writer = subprocess.Popen(
        [sys.executable, "-c", WRITES_UNTIL_KILLED, url], cwd=CHECKOUT, stdout=subprocess.PIPE, text=True
    )
    assert writer.stdout is not None
    told = [int(writer.stdout.readline()) for _ in range(20)][-1]
    os.kill(writer.pid, signal.SIGKILL)
    told = max([told, *map(int, writer.stdout.read().split())])
    writer.stdout.close()
    writer.wait()

    store = open_task_store(url)
    found = await store.get("acme", "support")
    await store.close()

    assert found is not None
    assert found.version >= told


async def test_two_processes_share_one_file(tmp_path):
    url = f"sqlite:///{tmp_path / 'decisions.db'}"
    one, other = open_task_store(url), open_task_store(url)
    await one.put("acme", "support", b"1", 0, NOW)

    found = await other.get("acme", "support")
    await one.close()
    await other.close()

    assert found is not None
    assert found.value == b"1"


async def test_tasks_of_a_decisions_file_lie_beside_it_for_their_owner_only(tmp_path):
    store = open_task_store(f"sqlite:///{tmp_path / 'deep' / 'decisions.db'}")
    await store.put("acme", "support", b"1", 0, NOW)
    await store.close()

    assert (tmp_path / "deep" / "decisions.tasks.db").stat().st_mode & 0o077 == 0


async def test_a_damaged_file_is_a_store_that_does_not_answer(tmp_path):
    (tmp_path / "decisions.tasks.db").write_bytes(b"no database" * 1_000)
    store = open_task_store(f"sqlite:///{tmp_path / 'decisions.db'}")

    with pytest.raises(StoreUnavailable, match="not a database"):
        await store.get("acme", "support")
    await store.close()


async def test_a_locked_file_is_waited_for(tmp_path):
    store = open_task_store(f"sqlite:///{tmp_path / 'decisions.db'}")
    await store.put("acme", "support", b"1", 0, NOW)
    other = sqlite3.connect(tmp_path / "decisions.tasks.db", isolation_level=None, check_same_thread=False)
    other.execute("BEGIN IMMEDIATE")
    other.execute("COMMIT")
    other.close()

    assert await store.put("acme", "support", b"2", 1, NOW) == 2
    await store.close()


async def test_a_server_that_is_gone_is_a_store_that_does_not_answer_until_it_is_back():
    server = Server(valkey())
    store = open_task_store(server.url)
    try:
        await store.put("acme", "support", b"1", 0, NOW)
        server.kill()
        with pytest.raises(StoreUnavailable):
            await store.put("acme", "support", b"2", 1, NOW)
        server.start()

        assert await store.get("acme", "support") is None  # this server keeps nothing on disk
    finally:
        await store.close()
        server.close()


async def test_an_object_that_no_record_names_expires_on_a_server_and_one_that_is_named_does_not(a_valkey):  # noqa: F811
    (server,) = a_valkey
    with server.client() as client:
        client.flushall()
        store = open_task_store(server.url)
        named, other = "ab" * 16, "cd" * 16
        key = "precedent:{{tasks}}:object:{}"

        await store.put_object(named, b"x", NOW)
        assert client.ttl(key.format(named)) > 0
        await store.put("acme", "one", b"1", 0, NOW, [named])
        await store.put("acme", "two", b"1", 0, NOW, [named])
        assert client.ttl(key.format(named)) == -1
        await store.put_object(other, b"y", NOW)
        await store.put("acme", "one", b"2", 1, NOW, [other])
        assert client.ttl(key.format(named)) == -1, "task two names it still"
        await store.put("acme", "two", None, 1, NOW)

        assert client.ttl(key.format(named)) > 0
        assert client.ttl(key.format(other)) == -1
        await store.close()


async def test_writers_in_a_cluster_whose_layout_changes_are_told_what_was_written(a_cluster):
    store = open_task_store(f"redis+cluster://127.0.0.1:{a_cluster[0].port}?prefix=moving:")
    changing = asyncio.create_task(asyncio.to_thread(change_the_layout, a_cluster, times=20))
    told = {f"task {n}": 0 for n in range(8)}

    async def write(task):
        while not changing.done():
            try:
                told[task] = await store.put("acme", task, b"value", None, NOW)
            except StoreUnavailable:
                await asyncio.sleep(0.01)

    await asyncio.gather(*(write(task) for task in told))
    await changing
    found = {entry.id: entry.version for entry in (await store.read(0)).entries}
    await store.close()

    assert all(found[task] >= version > 0 for task, version in told.items())


def change_the_layout(servers, times):
    """Take the slot of the tasks out of the cluster and put it back, over and over."""
    slot = key_slot(b"moving:{tasks}:")
    for _ in range(times):
        for command in ("DELSLOTS", "ADDSLOTS"):
            with contextlib.ExitStack() as clients:
                for server in servers:
                    client = clients.enter_context(server.client())
                    owns = command == "ADDSLOTS" and server is servers[slot * len(servers) // 16_384]
                    if command == "DELSLOTS" or owns:
                        with contextlib.suppress(ResponseError):  # not this one's
                            client.execute_command("CLUSTER", command, slot)
            time.sleep(0.02)
