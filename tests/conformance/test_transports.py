"""Runs the transport suite for each transport on each event loop."""

from __future__ import annotations

import asyncio
import os
import socket
import stat
import tempfile
from collections.abc import Awaitable, Callable, Iterator
from itertools import count
from pathlib import Path
from typing import Any

import pytest
from tests.conformance.socket_suite import SocketSuite
from tests.conformance.transport_suite import (
    LOOPS,
    Ground,
    Pair,
    Tap,
    TransportSuite,
    echo,
)
from tests.support.certificates import Certificates
from tests.support.descriptors import none_left

from requite.errors import TransportError
from requite.transport.address import (
    Address,
    InprocAddress,
    IpcAddress,
    TcpAddress,
    TlsAddress,
    WsAddress,
)
from requite.transport.aio import dial, listen


@pytest.fixture(params=LOOPS)
def run(request: pytest.FixtureRequest) -> Callable[[Any], None]:
    def run(scenario: Any) -> None:
        with asyncio.Runner(loop_factory=LOOPS[request.param]) as runner:
            runner.run(scenario)

    return run


@pytest.fixture(scope="module", autouse=True)
def loops_are_set_up() -> None:
    """Run each kind of loop once, since the first one opens descriptors that stay open."""
    for make_loop in LOOPS.values():
        with asyncio.Runner(loop_factory=make_loop) as runner:
            runner.run(asyncio.sleep(0))


@pytest.fixture(autouse=True)
def nothing_left_open(loops_are_set_up: None) -> Iterator[None]:
    with none_left():
        yield


@pytest.fixture(scope="module")
def certificates(tmp_path_factory: pytest.TempPathFactory) -> Certificates:
    return Certificates(tmp_path_factory.mktemp("certificates"))


@pytest.fixture
def folder() -> Iterator[Path]:
    """A folder for sockets: pytest's temporary paths are too long for socket names."""
    with tempfile.TemporaryDirectory(prefix="rq") as path:
        yield Path(path)


@pytest.fixture
def raw() -> Callable[[Address], Awaitable[Any]]:
    """Return a function that connects with asyncio's own streams."""

    async def connect(address: Address) -> Any:
        if isinstance(address, TcpAddress):
            return await asyncio.open_connection(address.host, address.port)
        assert isinstance(address, IpcAddress)
        return await asyncio.open_unix_connection(address.path)

    return connect


def is_there(path: str) -> bool:
    return os.path.exists(path)


def closed_port(host: str) -> TcpAddress:
    return TcpAddress(host, 1)  # tcpmux: nothing listens there, and it is never assigned


class TestTcp4(SocketSuite):
    @pytest.fixture
    def ground(self, run: Callable[[Any], None]) -> Ground:
        return Ground(run, lambda: TcpAddress("127.0.0.1", 0), lambda: closed_port("127.0.0.1"))


class TestTcp6(SocketSuite):
    @pytest.fixture
    def ground(self, run: Callable[[Any], None]) -> Ground:
        return Ground(run, lambda: TcpAddress("::1", 0), lambda: closed_port("::1"))


class TestIpc(SocketSuite):
    @pytest.fixture
    def ground(self, run: Callable[[Any], None], folder: Path) -> Ground:
        numbers = count()
        return Ground(
            run,
            lambda: IpcAddress(str(folder / f"{next(numbers)}.sock")),
            lambda: IpcAddress(str(folder / "nobody.sock")),
        )


class TestTls(TransportSuite):
    @pytest.fixture
    def ground(self, run: Callable[[Any], None], certificates: Certificates) -> Ground:
        def nobody() -> Address:
            return TlsAddress("127.0.0.1", closed_port("127.0.0.1").port)

        return Ground(run, lambda: TlsAddress("127.0.0.1", 0), nobody, certificates)


class TestWs(TransportSuite):
    @pytest.fixture
    def ground(self, run: Callable[[Any], None]) -> Ground:
        def nobody() -> Address:
            return WsAddress("127.0.0.1", closed_port("127.0.0.1").port, "/nobody")

        return Ground(run, lambda: WsAddress("127.0.0.1", 0, "/path"), nobody)


class TestWss(TransportSuite):
    @pytest.fixture
    def ground(self, run: Callable[[Any], None], certificates: Certificates) -> Ground:
        def nobody() -> Address:
            return WsAddress("::1", closed_port("::1").port, secure=True)

        return Ground(run, lambda: WsAddress("::1", 0, "/path", secure=True), nobody, certificates)


class TestInproc(TransportSuite):
    @pytest.fixture
    def ground(self, run: Callable[[Any], None]) -> Ground:
        return Ground(run, lambda: InprocAddress("*"), lambda: InprocAddress("nobody"))


# --- single transports ----------------------------------------------------------------------------
@pytest.fixture
def ipc(run: Callable[[Any], None], folder: Path) -> Ground:
    path = str(folder / "one.sock")
    return Ground(run, lambda: IpcAddress(path), lambda: IpcAddress(path))


def test_a_socket_file_is_private_and_removed_with_its_listener(ipc: Ground) -> None:
    async def scenario() -> None:
        path = ipc.free_address().path  # type: ignore[union-attr]
        umask = os.umask(0)
        try:
            pair = await Pair.open(ipc)
        finally:
            os.umask(umask)
        assert stat.S_IMODE(os.stat(path).st_mode) == 0o600
        await pair.close()
        assert not is_there(path)

    ipc.run(scenario())


def test_a_stale_socket_file_is_replaced(ipc: Ground) -> None:
    async def scenario() -> None:
        path = ipc.free_address().path  # type: ignore[union-attr]
        with socket.socket(socket.AF_UNIX) as dead:
            dead.bind(path)
        with pytest.raises(TransportError, match="refused"):
            await dial(IpcAddress(path), lambda _stream: None)
        pair = await Pair.open(ipc, echo)
        tap, served = await pair.connect()
        tap.write(b"alive")
        await tap.until_size(5)
        await pair.close(tap, served)

    ipc.run(scenario())


def test_a_foreign_file_is_kept(ipc: Ground) -> None:
    async def scenario() -> None:
        with pytest.raises(TransportError, match="not a socket"):
            await listen(address, lambda _stream: None)

    address = ipc.free_address()
    path = Path(address.path)  # type: ignore[union-attr]
    path.write_text("precious")
    ipc.run(scenario())
    assert path.read_text() == "precious"


def test_close_keeps_the_file_of_a_successor(ipc: Ground) -> None:
    async def scenario() -> None:
        path = ipc.free_address().path  # type: ignore[union-attr]
        first = await Pair.open(ipc)
        os.unlink(path)
        second = await Pair.open(ipc)
        await first.close()
        assert is_there(path)
        await second.close()

    ipc.run(scenario())


def test_the_wildcard_accepts_both_families(run: Callable[[Any], None]) -> None:
    async def scenario() -> None:
        taps: list[Tap] = []
        listener = await listen(TcpAddress("*", 0), lambda stream: taps.append(Tap(stream, echo)))
        port = listener.address.port  # type: ignore[union-attr]
        for host in ("127.0.0.1", "::1", "localhost"):
            ends: list[Tap] = []
            await dial(TcpAddress(host, port), lambda stream, ends=ends: ends.append(Tap(stream)))
            ends[0].write(b"hello")
            await ends[0].until_size(5)
            assert ends[0].data == b"hello"
            ends[0].stream.abort()
            await ends[0].until_closed()
        for tap in taps:
            await tap.until_closed()
        listener.close()

    run(scenario())


def test_a_name_with_two_addresses_has_one_port(run: Callable[[Any], None]) -> None:
    async def scenario() -> None:
        listener = await listen(TcpAddress("localhost", 0), lambda stream: Tap(stream))
        assert listener.address.port != 0  # type: ignore[union-attr]
        ends: list[Tap] = []
        await dial(listener.address, lambda stream: ends.append(Tap(stream)))
        ends[0].stream.abort()
        await ends[0].until_closed()
        listener.close()

    run(scenario())


def test_an_unknown_host_is_named(run: Callable[[Any], None]) -> None:
    async def scenario() -> None:
        with pytest.raises(TransportError, match=r"tcp://no\.such\.host\.invalid:1"):
            await dial(TcpAddress("no.such.host.invalid", 1), lambda _stream: None)

    run(scenario())


def test_a_dial_without_an_answer_times_out(
    run: Callable[[Any], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    async def scenario() -> None:
        async def silence(*_arguments: object) -> None:
            await asyncio.Event().wait()

        monkeypatch.setattr("requite.transport.tcp.dial", silence)
        with pytest.raises(TransportError, match=r"no answer within 0\.01 s"):
            await dial(TcpAddress("192.0.2.1", 1), lambda _stream: None, timeout_s=0.01)

    run(scenario())
