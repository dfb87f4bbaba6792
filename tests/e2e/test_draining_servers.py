"""A draining server closes its listener, so that another server can bind its address at once.

If it accepted connections and closed them, clients would treat their requests as lost.
"""

from __future__ import annotations

import asyncio

import pytest

from requite import AsyncClient, Request, Worker, service
from requite.queue import Queue

pytestmark = pytest.mark.e2e

ANY = "tcp://127.0.0.1:0"
BINDS = (
    "flp://127.0.0.1:0?model=agent",
    "flp://127.0.0.1:0?model=failover",
    "flp://127.0.0.1:0?model=shotgun",
    "pirate://127.0.0.1:0",
    "sp+tcp://127.0.0.1:0",
)


class Hold:
    """A service whose handler waits until `gate` is set."""

    def __init__(self) -> None:
        self.began = asyncio.Event()
        self.gate = asyncio.Event()
        self.service = service("hold")(self._handle)

    async def _handle(self, request: Request) -> bytes:
        self.began.set()
        await self.gate.wait()
        return request.body


@service("echo")
async def echo(request: Request) -> bytes:
    return request.body


@pytest.mark.parametrize("bind", BINDS)
async def test_another_server_can_bind_the_address_during_a_drain(bind: str) -> None:
    hold = Hold()
    worker = Worker(hold.service, bind=bind)
    await worker.start()
    [url] = worker.addresses
    async with AsyncClient(url) as client:
        held = asyncio.ensure_future(client.call(b"held", timeout=20))
        await hold.began.wait()
        draining = asyncio.ensure_future(worker.drain())
        await asyncio.sleep(0)
        async with Worker(echo, bind=url), AsyncClient(url) as newcomer:
            reply = await newcomer.call(b"new", timeout=20)
            hold.gate.set()
            await draining
            assert (reply.body, reply.attempts) == (b"new", 1)
            assert (await held).body == b"held"


@pytest.mark.parametrize("protocol", ["simple", "paranoid"])
async def test_another_queue_can_bind_the_addresses_during_a_drain(protocol: str) -> None:
    hold = Hold()
    queue = Queue(ANY, ANY, protocol=protocol)
    await queue.start()
    front, back = queue.front_addresses[0], queue.back_addresses[0]
    places = [url.partition("?")[0].replace("pirate", "tcp") for url in (front, back)]
    async with Worker(back, hold.service), AsyncClient(front) as client:
        held = asyncio.ensure_future(client.call(b"held", timeout=20))
        await hold.began.wait()
        draining = asyncio.ensure_future(queue.drain())
        await asyncio.sleep(0)
        async with (
            Queue(*places, protocol=protocol),
            Worker(back, echo),
            AsyncClient(front) as newcomer,
        ):
            reply = await newcomer.call(b"new", timeout=20)
            hold.gate.set()
            await draining
            assert (reply.body, reply.attempts) == (b"new", 1)
            assert (await held).body == b"held"
