"""What only a server can do to a store: other clients' replies, older versions, restarts, cuts."""

import asyncio
import subprocess
import sys
import time

import pytest
from redis.exceptions import ResponseError

from core.cache.stores import open_store
from core.cache.stores.base import FenceTable
from core.cache.stores.redis import RedisStore
from core.cache.stores.redis_wire import ClusterWire, Lost, ServerWire
from core.errors import SettingsError, StoreUnavailable
from tests.core.cache.servers import Server, redis_6, valkey

NOW = 1_700_000_000.0
K1, K2 = b"1" * 16, b"2" * 16


def number(n: int) -> bytes:
    return n.to_bytes(16, "big")


@pytest.fixture
def client(server):
    with server.client() as one:
        yield one


@pytest.fixture
async def store(proxy):
    one = open_store(proxy.url, max_entries=1)
    yield one
    proxy.thaw()
    await one.close()


class Recorder:
    """A wire that keeps what was sent, and may be told what the server replies."""

    divided = False

    def __init__(self, wire, replies=()):
        self.wire, self.replies = wire, list(replies)
        self.pipelines = []

    async def send(self, commands):
        self.pipelines.append(list(commands))
        return self.replies.pop(0) if self.replies else await self.wire.send(commands)

    async def count(self):
        return await self.wire.count()

    async def close(self):
        await self.wire.close()


@pytest.fixture
async def recorder(server):
    one = Recorder(ServerWire(server.url, 1.0))
    yield one
    await one.close()


async def test_commands_of_one_moment_travel_as_one_pipeline(recorder):
    store = RedisStore(recorder)

    await asyncio.gather(
        *(store.get_many([number(n)], NOW) for n in range(20)),
        *(store.add(number(n), b"value", None, NOW) for n in range(20)),
    )

    assert [len(pipeline) for pipeline in recorder.pipelines] == [40]


async def test_commands_that_come_while_all_pipelines_are_under_way_go_with_the_next(proxy):
    recorder = Recorder(ServerWire(proxy.url, 60.0))
    store = RedisStore(recorder, pipelines=2)
    proxy.freeze()
    calls = []
    for n in range(20):
        calls.append(asyncio.create_task(store.get_many([number(n)], NOW)))
        await asyncio.sleep(0.001)
    proxy.thaw()
    await asyncio.gather(*calls)

    assert [len(pipeline) for pipeline in recorder.pipelines] == [1, 1, 18]
    assert proxy.connections == 2
    await store.close()


async def test_the_first_value_wins_in_one_round_trip(recorder):
    store = RedisStore(recorder)
    await store.add(K1, b"first", NOW + 60, NOW)
    assert await store.add(K1, b"second", NOW + 60, NOW) == b"first"

    assert [len(pipeline) for pipeline in recorder.pipelines] == [1, 1]


async def test_a_server_before_seven_is_found_out_once_and_then_asked_in_its_own_way(a_redis_6):
    recorder = Recorder(ServerWire(a_redis_6[0].url, 1.0))
    store = RedisStore(recorder)
    with a_redis_6[0].client() as client:
        client.flushall()
    await store.add(K1, b"first", NOW + 60, NOW)
    assert await store.add(K1, b"second", NOW + 60, NOW) == b"first"
    assert await store.add(K2, b"third", None, NOW) == b"third"

    assert [len(pipeline) for pipeline in recorder.pipelines] == [1, 2, 2, 2]
    await store.close()


async def test_a_value_that_goes_between_two_looks_at_it_is_tried_for_again(server):
    syntax = [ResponseError("syntax error")]
    recorder = Recorder(
        ServerWire(server.url, 1.0), [syntax, [None, None]]
    )  # it was there, and then it was not
    store = RedisStore(recorder)

    assert await store.add(K1, b"value", None, NOW) == b"value"
    assert len(recorder.pipelines) == 3
    await store.close()


async def test_a_value_that_keeps_coming_and_going_is_never_answered_with_nothing(server):
    recorder = Recorder(ServerWire(server.url, 1.0), [[ResponseError("syntax error")], *[[None, None]] * 3])
    store = RedisStore(recorder)

    with pytest.raises(StoreUnavailable, match="came and went"):
        await store.add(K1, b"value", None, NOW)
    await store.close()


async def test_the_server_keeps_a_value_no_longer_than_it_lives(store, client):
    await store.add(K1, b"value", NOW + 60.5, NOW)
    await store.add(K2, b"value", None, NOW)

    assert 60_000 < client.pttl(b"precedent:" + K1) <= 60_500
    assert client.pttl(b"precedent:" + K2) == -1


async def test_the_shortest_life_is_a_millisecond_and_not_for_ever(store, client):
    await store.add(K1, b"value", NOW + 0.0004, NOW)

    assert client.pttl(b"precedent:" + K1) in (-2, 0, 1)


async def test_a_renewed_value_is_kept_longer_by_the_server_too(store, client):
    await store.add(K1, b"value", NOW + 60, NOW)
    await store.replace(K1, b"value", b"renewed", NOW + 6_000, NOW)
    assert client.pttl(b"precedent:" + K1) > 60_000
    await store.replace(K1, b"renewed", b"for ever", None, NOW)
    assert client.pttl(b"precedent:" + K1) == -1


async def test_a_caller_whose_clock_is_a_year_off_gets_the_life_it_asked_for(store, client):
    for clock in (NOW, time.time() + 3e7):
        client.flushall()
        await store.add(K1, b"value", clock + 60, clock)

        assert 59_000 < client.pttl(b"precedent:" + K1) <= 60_000


async def test_apps_with_different_prefixes_do_not_see_each_other(server):
    one, other = (open_store(f"{server.url}?prefix={name}:", 1) for name in ("one", "other"))
    await one.add(K1, b"one", None, NOW)
    await one.add_fence(b"scope", 0, ())

    assert await other.add(K1, b"other", None, NOW) == b"other"
    assert await other.read_fences(FenceTable()) is None
    await one.close()
    await other.close()


async def test_what_others_put_under_a_key_is_handed_on_and_can_be_replaced(store, client):
    for foreign in (b"", b"short", b"longer than any frame"):
        client.set(b"precedent:" + K1, foreign)
        found = await store.get_many([K1], NOW)
        assert await store.add(K1, b"value", None, NOW) == found[K1]
        assert await store.replace(K1, found[K1], b"value", None, NOW)
        assert await store.get_many([K1], NOW) == {K1: b"value"}
        assert await store.discard(K1, b"value")


async def test_a_thousand_cancelled_calls_never_give_the_next_caller_the_reply_of_another(proxy, store):
    for n in range(1_000):
        await store.add(number(n), number(n), None, NOW)
    proxy.delay_s = 0.0005
    for n in range(1_000):
        leaving = asyncio.create_task(store.get_many([number(n)], NOW))
        await asyncio.sleep(0.0002 * (n % 4))
        leaving.cancel()
        other = number((n + 1) % 1_000)

        assert await store.get_many([other], NOW) == {other: other}


async def test_a_connection_that_owes_a_reply_is_closed_and_never_used_again(proxy):
    store = RedisStore(ServerWire(proxy.url, 0.02))
    await store.add(K1, b"one", None, NOW)
    await store.add(K2, b"two", None, NOW)
    proxy.freeze()
    with pytest.raises(StoreUnavailable, match="TimeoutError"):
        await store.get_many([K1], NOW)
    proxy.thaw()

    assert await store.get_many([K2], NOW) == {K2: b"two"}
    assert proxy.connections == 2
    await store.close()


async def test_connections_that_died_while_idle_are_replaced_without_an_error(proxy, store):
    await asyncio.gather(*(store.add(number(n), b"value", None, NOW) for n in range(4)))
    proxy.reset()

    assert await store.get_many([number(1)], NOW) == {number(1): b"value"}


async def test_a_server_that_is_not_there_is_a_store_that_is_unavailable(proxy, store):
    proxy.refusing = True

    with pytest.raises(StoreUnavailable):
        await store.get_many([K1], NOW)
    proxy.refusing = False
    assert await store.get_many([K1], NOW) == {}


async def test_a_connection_cut_in_the_middle_of_a_call_is_an_error_of_that_call_only(proxy):
    store = RedisStore(ServerWire(proxy.url, 60.0))
    await store.add(K1, b"value", None, NOW)
    proxy.freeze()
    calling = asyncio.create_task(store.get_many([K1], NOW))
    await asyncio.sleep(0.01)
    proxy.refusing = True
    proxy.reset()
    with pytest.raises(StoreUnavailable):
        await calling
    proxy.refusing = False
    proxy.thaw()

    assert await store.get_many([K1], NOW) == {K1: b"value"}
    await store.close()


async def test_a_server_that_restarted_without_our_scripts_gets_them_again(store, client):
    await store.add(K1, b"value", None, NOW)
    assert await store.replace(K1, b"value", b"other", None, NOW)
    client.script_flush()

    assert await store.replace(K1, b"other", b"value", None, NOW)
    client.script_flush()
    assert await store.add_fence(b"scope", 0, ()) == 1


async def test_a_full_server_refuses_writes_and_still_answers(client, store):
    await store.add(K1, b"value", None, NOW)
    client.config_set("maxmemory", 1)
    try:
        with pytest.raises(StoreUnavailable, match="maxmemory"):
            await store.add(K2, b"value", None, NOW)
        assert await store.get_many([K1], NOW) == {K1: b"value"}
    finally:
        client.config_set("maxmemory", 0)


async def test_a_read_only_replica_refuses_writes_and_still_answers(server, client, store):
    await store.add(K1, b"value", None, NOW)
    client.config_set("repl-diskless-sync-delay", 0)
    replica = Server(valkey(), "--replicaof", "127.0.0.1", str(server.port))
    reading = open_store(replica.url, max_entries=1)
    with replica.client() as other:
        while other.info("replication")["master_link_status"] != "up":
            await asyncio.sleep(0.02)

    assert await reading.get_many([K1], NOW) == {K1: b"value"}
    for write in (reading.add(K2, b"value", None, NOW), reading.add_fence(b"scope", 0, ())):
        with pytest.raises(StoreUnavailable, match="read only"):
            await write
    await reading.close()
    replica.close()


async def test_a_server_that_became_a_replica_is_looked_for_anew_by_its_name(proxy, store, client):
    await store.add(K1, b"value", None, NOW)
    client.replicaof("127.0.0.1", 1)
    try:
        with pytest.raises(StoreUnavailable, match="read only"):
            await store.add(K2, b"value", None, NOW)
    finally:
        client.replicaof("NO", "ONE")
    await store.get_many([K1], NOW)

    assert proxy.connections == 2


async def test_calls_whose_connections_another_call_closed_have_no_replies_and_say_so(a_cluster):
    wire = ClusterWire(f"redis://127.0.0.1:{a_cluster[0].port}", 5.0, connections=4)
    calls = []
    for n in range(400):
        call = wire.count() if n % 4 == 3 else wire.send([("SET", number(n), b"value")])
        calls.append(asyncio.create_task(call))
        await asyncio.sleep(0.0002)
        if n % 10 == 9:
            await wire.close()
    outcomes = await asyncio.gather(*calls, return_exceptions=True)
    after = await wire.send([("SET", K1, b"value")])
    await wire.close()

    assert {type(one) for one in outcomes if not isinstance(one, (list, int, *Lost))} == set()
    assert after


async def test_a_cluster_whose_layout_changed_is_asked_for_it_again(a_cluster):
    for server in a_cluster:
        with server.client() as client:
            client.flushall()
    store = open_store(f"redis+cluster://127.0.0.1:{a_cluster[0].port}", max_entries=1)
    keys = [number(n) for n in range(100)]
    await asyncio.gather(*(store.add(key, key, None, NOW) for key in keys))
    for server in a_cluster:
        with server.client() as client:
            client.client_kill_filter(_type="normal", skipme=True)  # every connection, at once

    found: dict[bytes, bytes] = {}
    while len(found) < 100:
        try:
            found = await store.get_many(keys, NOW)
        except StoreUnavailable:
            continue
    assert found == {key: key for key in keys}
    assert await store.count(NOW) == 100
    await store.close()


async def test_passwords_are_used_and_never_shown():
    server = Server(redis_6())
    with server.client() as client:
        client.config_set("requirepass", "tr0ub4dor")
    right = open_store(f"redis://:tr0ub4dor@127.0.0.1:{server.port}", max_entries=1)
    wrong = open_store(f"redis://:wr0ng@127.0.0.1:{server.port}", max_entries=1)

    assert await right.add(K1, b"value", None, NOW) == b"value"
    with pytest.raises(StoreUnavailable) as raised:
        await wrong.get_many([K1], NOW)
    assert "wr0ng" not in str(raised.value)
    for store in (right, wrong):
        await store.close()
    server.close()


@pytest.mark.parametrize(
    ("url", "problem"),
    [
        ("postgres://me:secret@host/db", "use memory://"),
        ("", "use memory://"),
        ("memory", "use memory://"),
        ("sqlite://", "use memory://"),
        ("sqlite:///", "use memory://"),
        ("redis://", "no host"),
        ("redis+cluster:///0", "no host"),
        ("redis://host:port", "store"),
        ("redis://host?prefx=a", "unknown option prefx"),
        ("redis://[::1", "no URL"),
    ],
)
def test_a_url_that_names_no_store_is_refused_without_showing_its_secrets(url, problem):
    with pytest.raises(SettingsError, match=problem) as raised:
        open_store(url, max_entries=1)

    assert "secret" not in str(raised.value)


async def test_a_file_is_named_by_a_relative_or_an_absolute_path(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for url in ("sqlite:///relative.sqlite", f"sqlite:///{tmp_path}/absolute.sqlite"):
        store = open_store(url, max_entries=5)
        await store.add(K1, b"value", None, NOW)
        await store.close()

    assert {path.name for path in tmp_path.glob("*.sqlite")} == {"relative.sqlite", "absolute.sqlite"}


async def test_the_memory_store_is_opened_with_its_bound():
    store = open_store("memory://", max_entries=1)
    await store.add(K1, b"value", None, NOW)
    await store.add(K2, b"value", None, NOW)

    assert await store.count(NOW) == 1


def test_a_process_without_a_shared_store_does_not_load_its_client():
    program = (
        "import sys, core.cache.stores as stores; stores.open_store('memory://', 1); print(*sys.modules)"
    )
    ran = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)

    assert "core.cache.stores.sqlite" in ran.stdout
    assert "redis" not in ran.stdout.split()
