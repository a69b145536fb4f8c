"""What a Router serves of what the task store has, whatever becomes of either."""

import asyncio
import logging

import pytest

from core.engines.fake import FakeEngine
from core.errors import StoreUnavailable
from core.routing import no_vectors
from core.tables.students import Answers, StaticStudent
from core.tasks.notes import PREFIX, Note
from core.tasks.record import State, TableRef, object_digest
from core.tasks.record_json import encode
from core.tasks.registry import Registry
from core.tasks.stores.base import KEEP_TOMBSTONES_S
from core.tasks.stores.memory import MemoryTaskStore
from deployments.tables_on_node import TablesOnNode
from deployments.task_sync import Host, TaskSync
from deployments.timing import HostTimings, Stopwatch
from tests.core.tasks.tables import certificate, record
from tests.toy_language import examples, static_vectors

NOW = 1_000.0


@pytest.fixture(scope="module")
def table():
    """The bytes of a table."""
    texts, labels = examples((20, 20))
    student = StaticStudent(static_vectors())
    return student.fit(student.see(texts), Answers(labels), 2, lambda share: None).table.to_bytes()


class Breakable(MemoryTaskStore):
    """A store whose answers can be made to fail."""

    broken = ()
    reads = 0

    async def read(self, known):
        self.reads += 1
        return await self._unless("read", super().read(known))

    async def revision(self):
        return await self._unless("revision", super().revision())

    async def get_object(self, digest):
        return await self._unless("get_object", super().get_object(digest))

    async def _unless(self, name, doing):
        if name not in self.broken:
            return await doing
        doing.close()
        raise StoreUnavailable(name, "it is down")


@pytest.fixture
def store():
    return Breakable()


async def no_warmth(wait_s):
    raise AssertionError("no encoder is needed")


class Node:
    """One process of a node."""

    def __init__(self, store, folder, encoder=None):
        self.registry = Registry()
        self.now = NOW
        self.revoked: list[tuple[str, str]] = []
        self.engine = FakeEngine()
        stopwatch = Stopwatch(self.engine, no_vectors, no_warmth)
        self.timings = HostTimings(stopwatch, folder, lambda: self.now)
        self.sync = TaskSync(
            store,
            self.registry,
            TablesOnNode(folder, store),
            Host(encoder, self.engine.fingerprint),
            self.timings,
            self.revoke,
            lambda: self.now,
        )

    async def revoke(self, tenant, table_version):
        self.revoked.append((tenant, table_version))

    def served(self, task_id="support"):
        return self.registry.get("acme", task_id)


@pytest.fixture
def node(store, tmp_path):
    return Node(store, tmp_path / "tables")


async def put(store, data, task_id="support", *, version=0, student="", **fields):
    ref = TableRef(1, "static", object_digest(data), student, certificate())
    await store.put_object(object_digest(data), data, NOW)
    one = record(task_id, table=ref, **fields)
    return await store.put("acme", task_id, encode(one), version, NOW, [object_digest(data)])


async def test_what_is_in_the_store_is_served_with_its_table(store, node, table):
    await put(store, table)

    await node.sync.refresh()

    assert node.served().record.version == 1
    assert node.served().table.decide("lost my card").probabilities
    assert node.served().here is None
    assert node.sync.version("acme", "support") == 1


async def test_only_what_is_new_is_read_again(store, node, table):
    await put(store, table, "one")
    await node.sync.refresh()
    first = node.served("one")

    await put(store, table, "two")
    await node.sync.refresh()

    assert node.served("one") is first
    assert node.served("two") is not None


async def test_a_removed_task_is_served_no_more(store, node, table):
    await put(store, table)
    await node.sync.refresh()

    await store.put("acme", "support", None, 1, NOW)
    await node.sync.refresh()

    assert node.served() is None
    assert node.sync.version("acme", "support") == 0


async def test_a_store_that_was_emptied_leaves_nothing_to_serve(store, node, table):
    await put(store, table)
    await node.sync.refresh()

    store.__init__()
    await node.sync.refresh()

    assert node.served() is None


class TestATableThatCannotBeAsked:
    async def test_is_unavailable_with_the_reason_and_the_task_stays(self, store, node, table):
        await put(store, table)
        await store.put_object(object_digest(table), b"other bytes", NOW)

        await node.sync.refresh()

        assert node.served().table is None
        assert "register the task again" in node.served().here.reason

    async def test_because_its_bytes_are_no_table_is_unavailable(self, store, node):
        await put(store, b"no table")

        await node.sync.refresh()

        assert node.served().table is None
        assert node.served().here.state is State.UNAVAILABLE

    @pytest.mark.parametrize(("here", "is_served"), [("e1", True), ("e2", False), (None, False)])
    async def test_because_it_reads_the_vectors_of_another_encoder(
        self, store, tmp_path, table, here, is_served
    ):
        node = Node(store, tmp_path, encoder=here)
        await put(store, table, student="e1")

        await node.sync.refresh()

        assert (node.served().table is not None) is is_served
        if not is_served:
            assert "encoder e1" in node.served().here.reason

    async def test_because_the_store_stopped_half_way_is_asked_for_again(self, store, node, table):
        await put(store, table)
        store.broken = ("get_object",)

        with pytest.raises(StoreUnavailable):
            await node.sync.refresh()
        assert node.served().here.state is State.UNAVAILABLE
        store.broken = ()
        await node.sync.refresh()

        assert node.served().table is not None
        assert node.served().here is None


async def test_a_record_of_a_later_version_is_left_alone_and_said(store, node, table, caplog):
    await put(store, table)
    await node.sync.refresh()

    await store.put("acme", "support", b'{"format": "precedent-task/9"}', 1, NOW)
    with caplog.at_level(logging.ERROR):
        await node.sync.refresh()

    assert node.served().record.version == 1
    assert "a version this one cannot read" in caplog.text


async def test_notes_on_fits_are_seen_and_go(store, node):
    note = Note("support", "learning", 0.5, NOW)
    await store.put("acme", f"{PREFIX}support", note.encode(), None, NOW)
    await node.sync.refresh()
    assert node.sync.fits == {("acme", "support"): note}
    assert node.served() is None

    await store.put("acme", f"{PREFIX}support", None, None, NOW)
    await node.sync.refresh()

    assert node.sync.fits == {}


async def until(condition):
    async with asyncio.timeout(10):
        while not condition():
            await asyncio.sleep(0.001)


@pytest.fixture
async def keeping_up(node):
    chore = asyncio.create_task(node.sync.keep_up(0.001))
    yield node
    chore.cancel()
    await asyncio.wait([chore])


class TestKeepingUp:
    async def test_serves_what_is_written_elsewhere(self, store, keeping_up, table):
        await put(store, table)

        await until(lambda: keeping_up.served() is not None)

    async def test_reads_nothing_while_nothing_changes(self, store, keeping_up, table):
        await put(store, table)
        await until(lambda: keeping_up.served() is not None)
        reads = store.reads

        await asyncio.sleep(0.05)

        assert store.reads == reads

    async def test_serves_on_through_an_outage_and_says_so_once(self, store, keeping_up, table, caplog):
        await put(store, table)
        await until(lambda: keeping_up.served() is not None)

        with caplog.at_level(logging.WARNING):
            store.broken = ("revision", "read")
            await put(store, table, "two")
            await asyncio.sleep(0.05)
        assert keeping_up.served().table is not None
        assert len([each for each in caplog.records if "last known" in each.getMessage()]) == 1

        store.broken = ()
        await until(lambda: keeping_up.served("two") is not None)

    async def test_is_not_ended_by_a_surprise(self, store, keeping_up, table, caplog, monkeypatch):
        async def surprise(*_given):
            raise RuntimeError("a surprise")

        with monkeypatch.context() as patch, caplog.at_level(logging.ERROR):
            patch.setattr(store, "revision", surprise)
            await until(lambda: "could not be read" in caplog.text)
        await put(store, table)

        await until(lambda: keeping_up.served() is not None)

    async def test_drops_tombstones_a_week_old(self, store, node, table):
        await put(store, table)
        await store.put("acme", "support", None, 1, NOW)
        node.now = NOW + KEEP_TOMBSTONES_S + 1

        chore = asyncio.create_task(node.sync.keep_up(0.001))
        await until(lambda: not store._entries)
        chore.cancel()
        await asyncio.wait([chore])

        assert await store.get_object(object_digest(table)) is None


class TestFilesOfANode:
    async def test_are_fetched_once_and_serve_a_process_that_starts_while_the_store_is_without(
        self, store, node, table, tmp_path
    ):
        await put(store, table)
        await node.sync.refresh()
        store.broken = ("get_object",)

        another = Node(store, tmp_path / "tables")
        await another.sync.refresh()

        assert another.served().table is not None
        assert [path.name for path in (tmp_path / "tables").iterdir()] == [object_digest(table)]

    async def test_that_were_changed_are_fetched_again(self, store, node, table, tmp_path):
        await put(store, table)
        await node.sync.refresh()
        path = tmp_path / "tables" / object_digest(table)
        path.write_bytes(table[:-1] + bytes([table[-1] ^ 1]))

        another = Node(store, tmp_path / "tables")
        await another.sync.refresh()

        assert path.read_bytes() == table
        assert another.served().table is not None

    async def test_cannot_be_written_leaves_the_engine_to_answer(self, store, table, tmp_path):
        (tmp_path / "file").write_bytes(b"")
        node = Node(store, tmp_path / "file" / "tables")
        await put(store, table)

        await node.sync.refresh()

        assert node.served().table is None
        assert node.served().here.state is State.UNAVAILABLE

    async def test_are_closed_when_no_task_names_them(self, store, node, table):
        await put(store, table)
        await node.sync.refresh()
        assert node.sync._tables._open

        await store.put("acme", "support", None, 1, NOW)
        await node.sync.refresh()

        assert not node.sync._tables._open
