"""What happens in one iteration of the event loop, from a read to the writes that follow from it.

A stand-in for the stream records each write. A callback of the test that is scheduled after a read
runs at the end of the next iteration: what was written by then has cost no further one.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

import pytest
from tests.shell.fakes import FakeStream, LineFraming, ScriptedEngine

import requite
from requite.engine import Deliver, Received, Send, Submit
from requite.framing import SocketType, Zmtp
from requite.protocols.majordomo.dialects import by_version
from requite.protocols.majordomo.jobs import WorkerPolicy
from requite.protocols.majordomo.wire import WorkerFinal, WorkerRequest
from requite.protocols.majordomo.worker import MajordomoWorker
from requite.shell.aio import AioShell, run
from requite.shell.connections import Connections
from requite.shell.host import Link
from requite.transport.address import InprocAddress
from requite.worker.runner import Runner

CAPACITY = 16
Run = Callable[[Coroutine[Any, Any, None]], None]


@pytest.fixture(params=[False, True], ids=["asyncio", "uvloop"])
def on_loop(request: pytest.FixtureRequest) -> Run:
    def on_loop(scenario: Coroutine[Any, Any, None]) -> None:
        run(scenario, use_uvloop=request.param)

    return on_loop


class Worker:
    """A worker of a dialect with its shell; the test plays the broker on a stand-in of a stream."""

    def __init__(self, version: str, handler: Callable[[requite.Request], Any]) -> None:
        self.dialect = by_version(version)
        capacity = CAPACITY if version == "0.3" else 1
        engine = MajordomoWorker(
            self.dialect, "echo", WorkerPolicy(capacity=capacity), rng=lambda: 0.5
        )
        self.runner = Runner(requite.service("echo")(handler), capacity, 1, 1000, 10, told=set())
        nobody = Connections(lambda: Zmtp(SocketType.DEALER), [InprocAddress("nobody")])
        self.shell = AioShell(
            engine, nobody, deliver=self.runner.deliver, deliver_all=self.runner.deliver_all
        )
        self.runner.submit = self.shell.submit
        self.runner.submit_soon = self.shell.host.submit_soon
        self.stream = FakeStream()
        self.broker = Zmtp(SocketType.ROUTER)

    async def connect(self) -> None:
        """Complete the handshake, and take the worker's READY."""
        self.shell.start()
        self.link = self.shell.host.opened(self.stream)
        self.shell.host.received(self.link, self.broker.opening())
        while not (messages := self.broker.receive(self.take_writes())):
            self.shell.host.received(self.link, self.broker.output())
            await asyncio.sleep(0)
        assert len(messages) == 1

    async def close(self) -> None:
        self.shell.host.abort()
        self.shell.host.closed(self.link, "")
        await self.shell.close()
        await self.runner.close()

    def ask(self, n: int) -> None:
        """Send the worker `n` requests, all in one read."""
        out: list[Any] = []
        for number in range(n):
            request = WorkerRequest(b"client", [b"%d" % number], number, 0, 1, b"", b"")
            self.broker.encode(self.dialect.encode(request), out)
        self.shell.host.received(self.link, b"".join(out))

    def take_writes(self) -> bytes:
        data = self.stream.written
        self.stream.calls.clear()
        return data

    def replies(self, data: bytes) -> list[list[bytes]]:
        """Return the bodies of the FINALs in a piece of the worker's output."""
        commands = [self.dialect.decode_from_worker(each) for each in self.broker.receive(data)]
        assert all(isinstance(each, WorkerFinal) for each in commands)
        return [list(each.body) for each in commands]


@pytest.mark.parametrize(("version", "n"), [("0.3", CAPACITY), ("0.2", 1)])
def test_the_replies_to_one_read_leave_in_one_write_and_in_one_iteration(
    on_loop: Run, version: str, n: int
) -> None:
    async def echo(request: requite.Request) -> bytes:
        return request.body

    async def scenario() -> None:
        worker = Worker(version, echo)
        await worker.connect()
        for _ in range(3):  # the first request makes a lane, further ones wake it
            worker.ask(n)
            assert worker.stream.calls == []
            await asyncio.sleep(0)
            [written] = worker.stream.calls
            assert worker.replies(written) == [[b"%d" % number] for number in range(n)]
            worker.stream.calls.clear()
        await worker.close()

    on_loop(scenario())


def test_handlers_that_do_not_wait_share_one_task(on_loop: Run) -> None:
    tasks: list[Any] = []

    async def echo(request: requite.Request) -> bytes:
        tasks.append(asyncio.current_task())
        return request.body

    async def scenario() -> None:
        worker = Worker("0.3", echo)
        await worker.connect()
        before = asyncio.all_tasks()
        for _ in range(3):
            worker.ask(CAPACITY)
            await asyncio.sleep(0)
            await asyncio.sleep(0)
            assert worker.take_writes()
        assert len(tasks) == 3 * CAPACITY
        assert asyncio.all_tasks() - before == set(tasks)
        assert len(set(tasks)) == 1
        await worker.close()

    on_loop(scenario())


def test_the_next_call_leaves_in_the_iteration_after_the_read_of_a_reply(on_loop: Run) -> None:
    """A client with one call at a time: no iteration passes between its task and the write."""
    link: Link
    replies: asyncio.Future[Any]
    engine = ScriptedEngine()

    def script(event: Any) -> list[Any]:
        if isinstance(event, Received):
            return [Deliver(replies, frames) for frames in event.messages]
        if isinstance(event, Submit):
            return [Send(link, event.frames)]
        return []

    engine.script = script

    async def call_twice(shell: AioShell) -> None:
        nonlocal replies
        for body in (b"one", b"two"):
            replies = asyncio.get_running_loop().create_future()
            shell.host.submit_soon(Submit(None, "echo", [body], 0.0))
            await replies

    async def scenario() -> None:
        nonlocal link
        shell = AioShell(
            engine,
            Connections(LineFraming),
            deliver=lambda future, reply: future.set_result(reply),
        )
        shell.start()
        stream = FakeStream()
        link = shell.host.opened(stream, accepted=True)
        shell.host.received(link, b"peer\n")
        task = asyncio.create_task(call_twice(shell))
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        assert stream.calls[-1] == b"one\n"
        shell.host.received(link, b"reply\n")
        await asyncio.sleep(0)
        assert stream.calls[-1] == b"two\n"
        shell.host.received(link, b"reply\n")
        await task
        shell.host.abort()
        shell.host.closed(link, "")
        await shell.close()

    on_loop(scenario())
