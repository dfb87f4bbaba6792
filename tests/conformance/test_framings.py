"""SP framings over the transports that carry them, on each event loop."""

from __future__ import annotations

import asyncio
import tempfile
from collections.abc import Callable, Iterator
from functools import partial
from itertools import count
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from tests.conformance.transport_suite import LOOPS
from tests.support.certificates import Certificates
from tests.support.descriptors import none_left

from requite.errors import RemoteViolation, TransportError
from requite.framing import Framing, Limits
from requite.framing.sp import SpStream
from requite.framing.websocket import SpWebSocket
from requite.transport.address import (
    Address,
    InprocAddress,
    IpcAddress,
    TcpAddress,
    TlsAddress,
    WsAddress,
)
from requite.transport.aio import dial, listen
from requite.transport.base import Listener, Stream

REQ, REP = 48, 49
SIZES = [0, 1, 65_535, 65_536, 1 << 20]
LIMITS = Limits(message_size_bytes_max=1 << 20)
_numbers = count()

MakeFraming = Callable[[bool], Framing]


class Wire(NamedTuple):
    """Listening address and framing. `make_framing(dials)` creates the framing of either side."""

    address: Callable[[Path], Address]
    make_framing: MakeFraming


def on_stream(dials: bool, in_band: bool = False, peer: int = 0) -> Framing:
    own, other = (REQ, REP) if dials else (REP, REQ)
    return SpStream(own, peer or other, in_band=in_band, limits=LIMITS)


def on_web(dials: bool, path: str = "/rpc") -> Framing:
    own, other = (REQ, REP) if dials else (REP, REQ)
    host = "localhost" if dials else ""
    return SpWebSocket(own, other, is_client=dials, host=host, path=path, limits=LIMITS)


WIRES = {
    "tcp": Wire(lambda _: TcpAddress("127.0.0.1", 0), on_stream),
    "tls": Wire(lambda _: TlsAddress("::1", 0), on_stream),
    "inproc": Wire(lambda _: InprocAddress("*"), on_stream),
    "ipc": Wire(
        lambda folder: IpcAddress(str(folder / f"{next(_numbers)}")),
        partial(on_stream, in_band=True),
    ),
    "ws": Wire(lambda _: WsAddress("::1", 0, "/rpc"), on_web),
    "wss": Wire(lambda _: WsAddress("127.0.0.1", 0, "/rpc", secure=True), on_web),
}


@pytest.fixture(scope="module", autouse=True)
def certificates(tmp_path_factory: pytest.TempPathFactory) -> Certificates:
    for make_loop in LOOPS.values():
        with asyncio.Runner(loop_factory=make_loop) as runner:
            runner.run(asyncio.sleep(0))  # opens descriptors that stay open
    return Certificates(tmp_path_factory.mktemp("certificates"))


@pytest.fixture(autouse=True)
def nothing_left_open(certificates: Certificates) -> Iterator[None]:
    with none_left():
        yield


@pytest.fixture(params=LOOPS)
def run(request: pytest.FixtureRequest) -> Callable[[Any], None]:
    def run(scenario: Any) -> None:
        with asyncio.Runner(loop_factory=LOOPS[request.param]) as runner:
            runner.run(scenario)

    return run


class End:
    """One end of a connection: a stream and its framing, as in a host."""

    def __init__(self, stream: Stream, framing: Framing, *, echoes: bool = False) -> None:
        self.framing = framing
        self.messages: list[bytes] = []
        self.violation = ""
        self.is_closed = False
        self._stream = stream
        self._echoes = echoes
        self._changed = asyncio.Event()
        stream.start(self, None)
        stream.write(framing.opening())

    def send(self, *payloads: bytes) -> None:
        pieces: list[bytes] = []
        for payload in payloads:
            self.framing.encode([payload[:7], payload[7:]], pieces)
        self._stream.write(b"".join(pieces))

    def close(self) -> None:
        self._stream.close()

    def received(self, _link: object, chunk: bytes) -> None:
        try:
            messages = [message for [message] in self.framing.receive(chunk)]
        except RemoteViolation as violation:
            self.violation = str(violation)
            self._stream.write(self.framing.output())
            self._stream.close()
            return
        self._stream.write(self.framing.output())
        self.messages += messages
        if self._echoes and messages:
            self.send(*messages)
        self._changed.set()

    def blocked(self, _link: object) -> None:
        """Let the stream buffer unsent data."""

    def writable(self, _link: object) -> None:
        """Ignore the event."""

    def closed(self, _link: object, _reason: str) -> None:
        self.is_closed = True
        self._changed.set()

    async def until(self, condition: Callable[[], bool]) -> None:
        async with asyncio.timeout(20):
            while not condition():
                self._changed.clear()
                await self._changed.wait()


class Scene:
    """A listener whose connections echo, and one connection to it."""

    def __init__(self, wire: Wire, folder: Path, certificates: Certificates) -> None:
        self._wire = wire
        self._address = wire.address(folder)
        self._certificates = certificates
        self._listener: Listener
        self._came = asyncio.Event()
        self.served: End

    async def open(self, theirs: MakeFraming | None = None) -> End:
        place = await self.listen()
        make_framing = theirs or self._wire.make_framing
        ends: list[End] = []
        await dial(
            place,
            lambda stream: ends.append(End(stream, make_framing(True))),
            tls=self._certificates.to_dial,
        )
        await self.came()
        return ends[0]

    async def listen(self) -> Address:
        self._listener = await listen(self._address, self._take, self._certificates.to_listen)
        return self._listener.address

    async def came(self) -> None:
        async with asyncio.timeout(20):
            await self._came.wait()

    def stop(self) -> None:
        self._listener.close()

    def _take(self, stream: Stream) -> None:
        self.served = End(stream, self._wire.make_framing(False), echoes=True)
        self._came.set()

    async def close(self, end: End) -> None:
        end.close()
        self.stop()
        for each in (end, self.served):
            await each.until(lambda each=each: each.is_closed)


@pytest.fixture
def folder() -> Iterator[Path]:
    with tempfile.TemporaryDirectory(prefix="rq") as path:
        yield Path(path)


@pytest.mark.parametrize("wire", WIRES)
def test_messages_of_all_sizes_are_echoed_intact(
    run: Callable[[Any], None], wire: str, folder: Path, certificates: Certificates
) -> None:
    async def scenario() -> None:
        scene = Scene(WIRES[wire], folder, certificates)
        end = await scene.open()
        await end.until(lambda: end.framing.ready)
        sent = [bytes([number]) * size for number, size in enumerate(SIZES)]
        sent += [number.to_bytes(8, "big") for number in range(500)]
        for message in sent[: len(SIZES)]:
            end.send(message)
        end.send(*sent[len(SIZES) :])
        await end.until(lambda: len(end.messages) == len(sent))
        assert end.messages == sent
        await scene.close(end)
        assert not end.violation
        assert not scene.served.violation

    run(scenario())


@pytest.mark.parametrize("wire", WIRES)
def test_a_message_over_the_limit_ends_the_connection(
    run: Callable[[Any], None], wire: str, folder: Path, certificates: Certificates
) -> None:
    async def scenario() -> None:
        scene = Scene(WIRES[wire], folder, certificates)
        end = await scene.open()
        await end.until(lambda: end.framing.ready)
        end.send(bytes((1 << 20) + 1))
        await end.until(lambda: end.is_closed)
        await scene.served.until(lambda: scene.served.is_closed)
        assert "1048577 bytes" in scene.served.violation
        assert not scene.served.messages
        await scene.close(end)

    run(scenario())


@pytest.mark.parametrize("wire", WIRES)
def test_an_endpoint_of_another_kind_is_refused(
    run: Callable[[Any], None], wire: str, folder: Path, certificates: Certificates
) -> None:
    """By its type over a stream, and by the requested path over a WebSocket."""
    is_web = WIRES[wire].make_framing is on_web
    theirs: MakeFraming = (
        partial(on_web, path="/elsewhere")
        if is_web
        else lambda _dials: SpStream(16, 16, in_band=wire == "ipc", limits=LIMITS)
    )

    async def scenario() -> None:
        scene = Scene(WIRES[wire], folder, certificates)
        end = await scene.open(theirs)
        await end.until(lambda: end.is_closed)
        await scene.served.until(lambda: scene.served.is_closed)
        assert ("/elsewhere" if is_web else "PAIR0") in scene.served.violation
        await scene.close(end)

    run(scenario())


def test_tls_at_a_plain_listener_is_refused(
    run: Callable[[Any], None], folder: Path, certificates: Certificates
) -> None:
    """The dialling end reports missing TLS, the listening end missing SP."""

    async def scenario() -> None:
        scene = Scene(WIRES["tcp"], folder, certificates)
        place = await scene.listen()
        assert isinstance(place, TcpAddress)
        with pytest.raises(TransportError, match="the peer does not speak TLS"):
            await dial(TlsAddress(place.host, place.port), lambda _: None, tls=certificates.to_dial)
        await scene.came()
        await scene.served.until(lambda: scene.served.is_closed)
        assert "SP" in scene.served.violation
        scene.stop()

    run(scenario())
