"""The sockets `Req` and `Rep` of `requite.sp` on both event loops and over several transports."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from math import inf
from pathlib import Path
from typing import Any

import pytest
from tests.e2e.sp import TRANSPORTS, Echo, place
from tests.e2e.sp_loop import Run, on_loop

import requite
from requite.client import AsyncClient
from requite.errors import (
    CallTimeout,
    Cancelled,
    ConfigurationError,
    LocalViolation,
    Overloaded,
    TransportError,
)
from requite.shell.aio import run
from requite.sp import Device, Rep, Req
from requite.worker import Worker

__all__ = ["on_loop"]

pytestmark = pytest.mark.e2e

TCP = "sp+tcp://127.0.0.1:0"


async def reply_in_capitals(rep: Rep) -> None:
    """Answer each request with its body in capitals."""
    while True:
        request = await rep.receive()
        request.reply(request.body.upper())


class CapitalsRep:
    """A context manager with a `Rep` that answers requests in capitals within the block."""

    def __init__(self, **settings: Any) -> None:
        self.rep = Rep(**settings)

    async def __aenter__(self) -> Rep:
        self._task = asyncio.create_task(reply_in_capitals(self.rep))
        return self.rep

    async def __aexit__(self, *_error: object) -> None:
        await self.rep.close()
        with pytest.raises(Cancelled):
            await self._task


def test_the_module_is_imported_on_first_access() -> None:
    assert requite.sp.Req is Req
    with pytest.raises(AttributeError, match="nothing"):
        requite.sp.nothing  # noqa: B018 - the access raises


@pytest.mark.parametrize("binds", ["rep", "req"])
@pytest.mark.parametrize("transport", TRANSPORTS)
def test_either_side_may_listen(on_loop: Run, transport: str, binds: str, tmp_path: Path) -> None:
    async def scenario() -> None:
        async with Req() as req, CapitalsRep() as rep:
            listener, dialler = (rep, req) if binds == "rep" else (req, rep)
            urls = await listener.listen(place(transport, tmp_path))
            assert listener.addresses == urls
            for url in urls:
                await dialler.dial(url)
            assert await req.request(b"hello", timeout=20) == b"HELLO"
            bodies = [b"%da" % n for n in range(100)]
            replies = await asyncio.gather(*(req.request(body, timeout=20) for body in bodies))
            assert replies == [body.upper() for body in bodies]

    on_loop(scenario())


def test_sockets_may_connect_and_listen_at_once(on_loop: Run) -> None:
    async def scenario() -> None:
        async with Req() as req, CapitalsRep() as one, CapitalsRep() as two:
            [asks_at] = await req.listen(TCP)
            await one.dial(asks_at)
            [answers_at] = await two.listen(TCP)
            await req.dial(answers_at)
            while req.snapshot().channels < 2:
                await req.request(b"x", timeout=20)
            for _ in range(10):
                assert await req.request(b"y", timeout=20) == b"Y"

    on_loop(scenario())


async def send_much(req: Req) -> None:
    """Send more than fits into the worker's queue, the system's buffers and the client's buffer."""
    for _ in range(200):
        req.send(bytes(1 << 20), wait=False)
        await asyncio.sleep(0)


def test_back_pressure_is_reported_to_calls_that_do_not_wait(on_loop: Run) -> None:
    async def scenario() -> None:
        async with Req() as req, Rep(capacity=1) as rep:
            with pytest.raises(Overloaded, match="no connection to any peer") as caught:
                req.send(b"x", wait=False)
            assert not caught.value.may_have_executed
            waiting = req.send(b"waits")
            [url] = await rep.listen(TCP)
            await req.dial(url)
            first = await rep.receive()
            assert first.body == b"waits"
            with pytest.raises(Overloaded, match="back-pressure"):
                await send_much(req)
            first.reply(b"done")
            assert await waiting == b"done"

    on_loop(scenario())


def test_a_request_is_cancelled_on_either_side(on_loop: Run) -> None:
    async def scenario() -> None:
        async with Req() as req, Rep() as rep:
            await req.dial((await rep.listen(TCP))[0])
            given_up = req.send(b"given up")
            late = await rep.receive()
            given_up.cancel()
            late.reply(b"too late")
            refused = asyncio.create_task(req.request(b"refused", timeout=0.1))
            (await rep.receive()).cancel()
            with pytest.raises(CallTimeout):
                await refused
            last = asyncio.create_task(req.request(b"last", timeout=20))
            request = await rep.receive()
            request.reply(b"answer")
            assert await last == b"answer"
            with pytest.raises(LocalViolation, match="already answered"):
                request.reply(b"again")
            with pytest.raises(LocalViolation, match="already answered"):
                request.cancel()
            assert (req.snapshot().sent, req.snapshot().held) == (0, 0)
            assert rep.snapshot().running == 0

    on_loop(scenario())


def test_each_request_has_its_own_resend_timer(on_loop: Run) -> None:
    async def scenario() -> None:
        async with Req() as req, Rep() as rep:
            await req.dial((await rep.listen(TCP))[0])
            patient = req.send(b"patient", resend=inf)
            hasty = req.send(b"hasty", resend=0.05)
            seen = [await rep.receive() for _ in range(4)]
            assert [request.body for request in seen] == [b"patient", *[b"hasty"] * 3]
            for request in reversed(seen):
                request.reply(request.body)
            assert (await patient, await hasty) == (b"patient", b"hasty")

    on_loop(scenario())


def test_without_resending_a_lost_connection_fails_the_request(on_loop: Run) -> None:
    async def scenario() -> None:
        async with Req() as req:
            rep = Rep()
            [url] = await rep.listen(TCP)
            await req.dial(url)
            once, again = req.send(b"once", resend=None), req.send(b"again", resend=inf)
            for _ in range(2):
                await rep.receive()
            await rep.close()
            with pytest.raises(TransportError, match="connection that had the request was lost"):
                await once
            async with Rep() as rep:
                await rep.listen(url)
                (await rep.receive()).reply(b"here")
                assert await again == b"here"

    on_loop(scenario())


def test_requests_of_a_lost_peer_are_not_received(on_loop: Run) -> None:
    async def scenario() -> None:
        async with Rep() as rep:
            [url] = await rep.listen(TCP)
            lost = Req()
            await lost.dial(url)
            for body in (b"one", b"two"):
                lost.send(body).add_done_callback(lambda future: future.exception())
            held = await rep.receive()
            await lost.close()
            async with Req() as req:
                await req.dial(url)
                reply = req.send(b"three")
                request = await rep.receive()
                while not held.is_lost:  # noqa: ASYNC110 - it has no event
                    await asyncio.sleep(0)
                held.reply(b"nobody hears it")
                if request.body == b"two":
                    request.cancel()
                    request = await rep.receive()
                assert request.body == b"three"
                request.reply(b"answer")
                assert await reply == b"answer"

    on_loop(scenario())


def test_closing_ends_all_waits(on_loop: Run) -> None:
    async def scenario() -> None:
        req, rep = Req(), Rep()
        receiving = [asyncio.create_task(rep.receive()) for _ in range(3)]
        asking = asyncio.create_task(req.request(b"x"))
        await asyncio.sleep(0)
        await rep.close()
        await req.close()
        for task in (*receiving, asking):
            with pytest.raises(Cancelled, match="the socket was closed"):
                await task
        for late in (req.dial(TCP), rep.listen(TCP), rep.receive(), req.request(b"x")):
            with pytest.raises(Cancelled, match="the socket was closed"):
                await late

    on_loop(scenario())


def test_invalid_operations_are_refused(on_loop: Run) -> None:
    async def scenario() -> None:
        async with Req(message_size_max=10) as req, Rep() as rep:
            with pytest.raises(ConfigurationError, match="more than the 10 bytes"):
                req.send(bytes(11))
            with pytest.raises(ConfigurationError, match="SP carries only one"):
                req.send([b"a", b"b"])
            with pytest.raises(TypeError, match="encode it"):
                req.send("text")  # type: ignore[arg-type]
            with pytest.raises(ConfigurationError, match="timeout"):
                req.send(b"x", timeout=-1)
            for option in ("resend=off", "resend=1"):
                with pytest.raises(ConfigurationError, match=r"Req\(resend="):
                    await req.dial(f"{TCP[:-1]}1?{option}")
                with pytest.raises(ConfigurationError, match=r"Req\(resend="):
                    await req.listen(f"{TCP}?{option}")
            with pytest.raises(ConfigurationError, match="'weight' has no effect"):
                await rep.listen(f"{TCP}?weight=2")
            with pytest.raises(ConfigurationError, match="not MDP"):
                await req.dial("mdp://localhost")
            [taken] = await req.listen(TCP)
            with pytest.raises(TransportError, match="in use"):
                await req.listen(taken)
            with pytest.raises(CallTimeout, match="no peer is connected"):
                await req.request(b"x", timeout=0.05)

    on_loop(scenario())


@pytest.mark.parametrize(
    "make",
    [
        lambda: Rep(hops="x"),  # type: ignore[arg-type]
        lambda: Rep(capacity=None),  # type: ignore[arg-type]
        lambda: Req(slots="x"),  # type: ignore[arg-type]
        lambda: Req(message_size_max="x"),  # type: ignore[arg-type]
        lambda: Device(TCP, TCP, hops="x"),  # type: ignore[arg-type]
    ],
)
def test_settings_that_are_not_numbers_are_refused(make: Callable[[], object]) -> None:
    with pytest.raises(ConfigurationError, match="must be a whole number"):
        make()


def test_the_url_of_a_socket_with_draft_types_says_so(on_loop: Run) -> None:
    async def scenario() -> None:
        draft = f"{TCP}?ids=draft"
        async with Req() as req, Rep() as rep:
            [plain] = await rep.listen(TCP)
            [url] = await rep.listen(draft)
            assert url.endswith("?ids=draft")
            assert rep.addresses == [plain, url]
            await req.dial(url)
            answer = req.send(b"x", timeout=20)
            (await rep.receive()).reply(b"y")
            assert await answer == b"y"
        async with Device(draft, TCP) as device, Worker(Echo().service, bind=draft) as worker:
            addresses_of = [device.front_addresses, device.back_addresses, worker.addresses]
            assert [urls[0].endswith("?ids=draft") for urls in addresses_of] == [True, False, True]
        async with AsyncClient(bind=draft) as client:
            assert client.addresses[0].endswith("?ids=draft")

    on_loop(scenario())


def test_sockets_stay_on_their_event_loop(on_loop: Run) -> None:
    async def scenario() -> None:
        async with Req() as req, Rep() as rep:
            await req.dial((await rep.listen(TCP))[0])
            first = req.send(b"x", timeout=20)
            (await rep.receive()).reply(b"y")
            assert await first == b"y"
            for use in (
                lambda: req.request(b"x", timeout=20),
                lambda: req.dial("sp+tcp://127.0.0.1:1"),
                lambda: rep.listen(TCP),
                rep.receive,
            ):
                with pytest.raises(LocalViolation, match="started on another event loop"):
                    await asyncio.to_thread(run, use(), use_uvloop=False)

    on_loop(scenario())
