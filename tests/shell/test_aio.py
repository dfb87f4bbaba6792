"""The asyncio shell: scripted engines on real event loops, connected within the process."""

from __future__ import annotations

import asyncio
import socket
import sys
from collections.abc import Callable, Coroutine
from itertools import count
from typing import Any

import pytest
import uvloop
from tests.shell.fakes import LineFraming, ScriptedEngine

from requite.backoff import Backoff
from requite.engine import (
    Cause,
    Connect,
    Disconnect,
    Drain,
    PeerJoined,
    PeerLost,
    Received,
    Send,
    Stopped,
    Wake,
)
from requite.errors import ConfigurationError, LocalViolation
from requite.shell import clock
from requite.shell.aio import AioShell, new_event_loop, run
from requite.shell.connections import Connections, Endpoint
from requite.shell.host import LinkLimits
from requite.transport.address import InprocAddress, TcpAddress

Run = Callable[[Coroutine[Any, Any, None]], None]
_names = count()
ANY = TcpAddress("127.0.0.1", 0)
LINES = Connections(LineFraming)


@pytest.fixture(params=[False, True], ids=["asyncio", "uvloop"])
def on_loop(request: pytest.FixtureRequest) -> Run:
    def on_loop(scenario: Coroutine[Any, Any, None]) -> None:
        async def limited() -> None:
            async with asyncio.timeout(20):
                await scenario

        run(limited(), use_uvloop=request.param)

    return on_loop


class Engine(ScriptedEngine):
    """A scripted engine with a method to wait for an input."""

    def __init__(self) -> None:
        super().__init__()
        self._changed = asyncio.Event()

    def handle(self, events: Any, now: float) -> Any:
        self._changed.set()
        return super().handle(events, now)

    async def until(self, kind: str, times: int = 1) -> None:
        while self.kinds().count(kind) < times:
            self._changed.clear()
            await self._changed.wait()


def echo(event: Any) -> list[Any]:
    if isinstance(event, Received):
        return [Send(event.peer, message) for message in event.messages]
    return [Stopped()] if type(event) is Drain else []


def dialling(event: Any) -> list[Any]:
    return [Connect()] if type(event) is Wake else [Stopped()] if type(event) is Drain else []


def shells(
    address: Any | None = None, **settings: Any
) -> tuple[AioShell, Engine, AioShell, Engine]:
    """Return a listening shell that echoes, and a dialling one that connects at its first wake."""
    listener_engine, dialler_engine = Engine(), Engine()
    listener_engine.script = echo
    dialler_engine.script = dialling
    dialler_engine.at = 0.0
    listener = AioShell(listener_engine, LINES)
    address = address or InprocAddress(f"shell-{next(_names)}")
    settings = {"backoff": Backoff(lambda: 0.0, first_s=0.001), **settings}
    dialler = AioShell(dialler_engine, Connections(LineFraming, dial_to=[address]), **settings)
    return listener, listener_engine, dialler, dialler_engine


def start(shell: AioShell, engine: Engine) -> None:
    shell.start()
    engine.at = None


def test_two_shells_exchange_messages(on_loop: Run) -> None:
    async def scenario() -> None:
        listener, served, dialler, engine = shells()
        await listener.listen(Endpoint(dialler.troubles[0][0], LineFraming))
        start(dialler, engine)
        await engine.until("PeerJoined")
        peer = engine.inputs[-1].peer
        engine.script = lambda event: [Send(peer, [b"one"]), Send(peer, [b"two"])]
        dialler.submit(Drain())
        engine.script = dialling
        await engine.until("Received")
        assert served.messages() == [[[b"one"], [b"two"]]]  # sent in one write
        assert engine.messages() == [[[b"one"], [b"two"]]]
        await dialler.drain()
        await served.until("PeerLost")
        await listener.close()

    on_loop(scenario())


def test_an_address_is_redialled_until_a_shell_listens(on_loop: Run) -> None:
    async def scenario() -> None:
        refused = asyncio.Event()

        def rng() -> float:  # called at the start of a back-off
            refused.set()
            return 0.0

        listener, _, dialler, engine = shells(backoff=Backoff(rng, first_s=0.001))
        start(dialler, engine)
        await refused.wait()
        assert "no listener" in dialler.trouble
        await listener.listen(Endpoint(dialler.troubles[0][0], LineFraming))
        await engine.until("PeerJoined")
        assert dialler.trouble == ""
        await dialler.close()
        await listener.close()

    on_loop(scenario())


def test_a_rejected_connection_is_closed_unseen_by_the_engine(on_loop: Run) -> None:
    async def scenario() -> None:
        answers = iter([False, False, True])
        served, engine = Engine(), Engine()
        listener = AioShell(served, LINES, lets_in=lambda: next(answers))
        bound = await listener.listen(Endpoint(ANY, LineFraming))
        engine.at = 0.0
        engine.script = lambda event: [Connect()] if type(event) in (Wake, PeerLost) else []
        shell = AioShell(engine, Connections(LineFraming, dial_to=[bound]))
        start(shell, engine)
        await served.until("PeerJoined")
        await engine.until("PeerJoined", 3)
        assert engine.kinds().count("PeerLost") == 2
        assert served.kinds().count("PeerJoined") == 1
        await shell.close()
        await listener.close()
        assert not listener.host.links

    on_loop(scenario())


def test_the_timer_wakes_the_engine_once_and_not_early(on_loop: Run) -> None:
    async def scenario() -> None:
        engine = Engine()
        woken_at: list[float] = []
        shell = AioShell(engine, LINES)
        shell.start()

        def script(event: Any) -> list[Any]:
            if type(event) is Wake:
                woken_at.append(clock.now())
                engine.at = None
            return []

        engine.script = script
        far, near = clock.now() + 60, clock.now() + 0.03
        for engine.at in (far, near):
            shell.submit(Stopped())
        await engine.until("Wake")
        assert near <= woken_at[0] < far
        assert len(woken_at) == 1
        await shell.close()

    on_loop(scenario())


def test_drain_waits_for_the_engine(on_loop: Run) -> None:
    async def scenario() -> None:
        engine = Engine()
        shell = AioShell(engine, LINES)
        draining = asyncio.create_task(shell.drain())
        await engine.until("Drain")
        await asyncio.sleep(0)
        assert not draining.done()
        engine.script = lambda event: [Stopped()]
        shell.submit(Wake())
        await draining

    on_loop(scenario())


def test_close_flushes_pending_output(on_loop: Run) -> None:
    async def scenario() -> None:
        listener, served, dialler, engine = shells(TcpAddress("127.0.0.1", 0))
        bound = await listener.listen(Endpoint(ANY, LineFraming))
        dialler = AioShell(engine, Connections(LineFraming, dial_to=[bound]))
        start(dialler, engine)
        await engine.until("PeerJoined")
        peer = engine.inputs[-1].peer
        words = b"x" * (4 << 20)  # more than some kernels accept at once
        engine.script = lambda event: [Send(peer, [words])] if type(event) is Drain else []
        dialler.submit(Drain())
        served.script = lambda event: []
        await dialler.close()
        await served.until("PeerLost")
        arrived = [batch for batch in served.messages() if batch]  # not those of partial reads
        assert [len(frame) for [[frame]] in arrived] == [len(words)]
        await listener.close()

    on_loop(scenario())


async def leave_a_listener_open(error: Exception | None = None) -> TcpAddress:
    bound = await AioShell(Engine(), LINES).listen(Endpoint(ANY, LineFraming))
    assert isinstance(bound, TcpAddress)
    if error is not None:
        raise error
    return bound


def test_uvloop_closes_an_open_listener_even_if_warnings_are_errors() -> None:
    with pytest.raises(ResourceWarning, match="unclosed resource <TCPServer"):
        run(leave_a_listener_open(), use_uvloop=True)
    with pytest.warns(ResourceWarning, match="unclosed resource <TCPServer"):
        bound = run(leave_a_listener_open(), use_uvloop=True)
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection((bound.host, bound.port))


def test_an_error_keeps_precedence_over_a_resource_warning() -> None:
    with pytest.raises(KeyError) as failed:
        run(leave_a_listener_open(KeyError("why")), use_uvloop=True)
    assert failed.value.__notes__[0].startswith("left open: unclosed resource <TCPServer")


def test_a_peer_that_does_not_read_cannot_delay_close(on_loop: Run) -> None:
    async def scenario() -> None:
        writers: list[asyncio.StreamWriter] = []

        async def ignore(_reader: Any, writer: asyncio.StreamWriter) -> None:
            writer.transport.pause_reading()  # type: ignore[attr-defined]
            writer.write(b"hello\n")
            writers.append(writer)

        server = await asyncio.start_server(ignore, "127.0.0.1", 0)
        address = TcpAddress("127.0.0.1", server.sockets[0].getsockname()[1])
        engine = Engine()
        engine.at = 0.0
        engine.script = dialling
        connections = Connections(LineFraming, dial_to=[address], limits=LinkLimits(linger_s=0.05))
        shell = AioShell(engine, connections)
        start(shell, engine)
        await engine.until("PeerJoined")
        peer = engine.inputs[-1].peer
        engine.script = lambda event: [
            Send(peer, [b"x" * (16 << 20)]),
            Disconnect(peer, "over", Cause.DONE),
        ]
        began = clock.now()
        shell.submit(Drain())
        await shell.close()
        assert clock.now() - began < 5
        assert not shell.host.links
        server.close()
        writers[0].transport.abort()

    on_loop(scenario())


# --- persistent connections -----------------------------------------------------------------------
def names_of(engine: Engine) -> list[tuple[bytes, Any]]:
    return [(event.identity, event.place) for event in engine.inputs if type(event) is PeerJoined]


def test_persistent_connections_are_redialled(on_loop: Run) -> None:
    async def scenario() -> None:
        served, engine = Engine(), Engine()
        listener = AioShell(served, LINES)
        one, two = [await listener.listen(Endpoint(ANY, LineFraming, n)) for n in (1, 2)]
        shell = AioShell(engine, Connections(keep=[Endpoint(one, LineFraming, "A")]))
        shell.start()
        shell.keep(Endpoint(two, LineFraming, "B"))
        await engine.until("PeerJoined", 2)
        await served.until("PeerJoined", 2)
        assert sorted(place for _, place in names_of(engine)) == ["A", "B"]
        assert sorted(place for _, place in names_of(served)) == [1, 2]
        assert shell.trouble == ""
        first = next(event.peer for event in served.inputs if type(event) is PeerJoined)
        served.script = lambda event: (
            [Disconnect(first, "enough", Cause.DONE)] if type(event) is Drain else []
        )
        listener.submit(Drain())
        await engine.until("PeerLost")
        await engine.until("PeerJoined", 3)  # redialled without a request by the engine
        assert len(shell.host.links) == 2
        await shell.close()
        await served.until("PeerLost", 2)
        await listener.close()

    on_loop(scenario())


def test_a_persistent_connection_is_redialled_until_a_shell_listens(on_loop: Run) -> None:
    async def scenario() -> None:
        address = InprocAddress(f"shell-{next(_names)}")
        engine, served = Engine(), Engine()
        shell = AioShell(engine, Connections(keep=[Endpoint(address, LineFraming)]))
        assert "has not answered yet" in shell.trouble
        shell.start()
        while "no listener" not in shell.trouble:  # noqa: ASYNC110 - there is no event
            await asyncio.sleep(0)
        listener = AioShell(served, Connections())
        await listener.listen(Endpoint(address, LineFraming))
        assert "no peer is connected to inproc://" in listener.trouble
        await engine.until("PeerJoined")
        assert shell.trouble == ""
        await shell.close()
        await listener.close()

    on_loop(scenario())


def test_a_failed_handshake_is_retried_and_reported(on_loop: Run) -> None:
    async def scenario() -> None:
        class Refusing(LineFraming):
            def opening(self) -> bytes:
                return b"!\n"

        engine, served = Engine(), Engine()
        listener = AioShell(served, Connections())
        bound = await listener.listen(Endpoint(ANY, Refusing))
        shell = AioShell(engine, Connections(keep=[Endpoint(bound, LineFraming)]))
        shell.start()
        await served.until("PeerJoined", 2)  # the first handshake has failed
        assert "no line starts like" in shell.trouble
        assert engine.kinds() == []
        await shell.close()
        await listener.close()

    on_loop(scenario())


@pytest.mark.parametrize("keeps", [False, True])
@pytest.mark.parametrize("turns", range(12))
def test_close_while_dialling_leaves_no_links(on_loop: Run, turns: int, keeps: bool) -> None:
    async def scenario() -> None:
        engine = Engine()
        engine.at = 0.0
        engine.script = dialling
        served = Engine()
        listener = AioShell(served, LINES)
        bound = await listener.listen(Endpoint(ANY, LineFraming))
        if keeps:
            engine.script = echo
            shell = AioShell(engine, Connections(keep=[Endpoint(bound, LineFraming)]))
        else:
            shell = AioShell(engine, Connections(LineFraming, dial_to=[bound]))
        start(shell, engine)
        for _ in range(turns):
            await asyncio.sleep(0)
        began = clock.now()
        await shell.close()
        await listener.close()
        assert clock.now() - began < 4  # neither side waits for the other (5 s)
        assert not shell.host.links
        assert not listener.host.links

    on_loop(scenario())


def test_a_shell_stays_on_its_loop() -> None:
    shell = AioShell(Engine(), LINES)

    async def begin() -> None:
        shell.start()
        shell.start()

    run(begin())
    with pytest.raises(LocalViolation, match="loop"):
        run(begin())


def test_uvloop_is_used_where_it_is_installed(monkeypatch: pytest.MonkeyPatch) -> None:
    loops = [new_event_loop(choice) for choice in (None, True, False)]
    kinds = [isinstance(loop, uvloop.Loop) for loop in loops]
    for loop in loops:
        loop.close()
    assert kinds == [True, True, False]
    monkeypatch.setitem(sys.modules, "uvloop", None)  # as if it were not installed
    loop = new_event_loop()
    assert isinstance(loop, asyncio.BaseEventLoop)
    loop.close()
    with pytest.raises(ConfigurationError, match=r"requite\[fast\]"):
        new_event_loop(True)
