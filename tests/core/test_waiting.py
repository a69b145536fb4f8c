"""Waiting for others, on the event loops that serve and that test."""

import asyncio
import socket
import time
from collections.abc import Coroutine
from typing import Any

import pytest
import uvloop

from core.waiting import within

LOOPS = {"asyncio": asyncio.new_event_loop, "uvloop": uvloop.new_event_loop}
WAIT_S = 0.02


@pytest.fixture(params=LOOPS)
def run(request):
    """Runs a coroutine on each kind of loop."""

    def run(coroutine: Coroutine[Any, Any, object]) -> object:
        with asyncio.Runner(loop_factory=LOOPS[request.param]) as runner:
            return runner.run(coroutine)

    return run


class Peer:
    """Answers with a byte whenever it is told to."""

    async def __aenter__(self):
        ours, self._theirs = socket.socketpair()
        self._reader, self._writer = await asyncio.open_connection(sock=ours)
        return self

    async def __aexit__(self, *_):
        self._writer.close()
        self._theirs.close()

    def answer(self):
        self._theirs.send(b"x")

    async def reply(self):
        return await self._reader.readexactly(1)


def stall_after_answering(peer):
    """What a rush of requests does: the reply is there, and nobody looks."""
    peer.answer()
    time.sleep(3 * WAIT_S)


def test_a_reply_in_time_is_returned(run):
    async def wait():
        async with Peer() as peer, within(60.0):
            peer.answer()
            return await peer.reply()

    assert run(wait()) == b"x"


def test_a_peer_that_does_not_answer_is_given_up(run):
    async def wait():
        async with Peer() as peer, within(WAIT_S):
            return await peer.reply()

    with pytest.raises(TimeoutError):
        run(wait())


@pytest.mark.parametrize("when", ["a callback", "a timer"])
def test_a_reply_that_came_while_this_process_was_busy_is_not_late(run, when):
    async def wait():
        loop = asyncio.get_running_loop()
        async with Peer() as peer, within(WAIT_S):
            if when == "a timer":
                loop.call_later(WAIT_S / 10, stall_after_answering, peer)
            else:
                loop.call_soon(stall_after_answering, peer)
            return await peer.reply()

    assert run(wait()) == b"x"


def test_a_loop_that_never_rests_is_no_reason_to_wait_for_ever(run):
    async def wait():
        loop = asyncio.get_running_loop()

        def be_busy():
            time.sleep(WAIT_S / 4)
            loop.call_soon(be_busy)

        loop.call_soon(be_busy)
        async with Peer() as peer, within(WAIT_S):
            return await peer.reply()

    with pytest.raises(TimeoutError):
        run(wait())


def test_a_caller_that_leaves_is_not_told_of_a_timeout(run):
    async def wait():
        async def call():
            async with within(60.0):
                await asyncio.Event().wait()

        task = asyncio.create_task(call())
        await asyncio.sleep(0)
        task.cancel()
        await task

    with pytest.raises(asyncio.CancelledError):
        run(wait())


def test_what_the_block_raises_passes(run):
    async def wait():
        async with within(60.0):
            raise LookupError

    with pytest.raises(LookupError):
        run(wait())
