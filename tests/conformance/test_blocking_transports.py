"""All transports without an event loop, with both ends in one poll."""

from __future__ import annotations

import os
import resource
import socket
import tempfile
from collections.abc import Callable, Iterator
from itertools import count
from pathlib import Path
from typing import Any

import pytest
from tests.support.certificates import Certificates
from tests.support.descriptors import none_left
from tests.support.hand_poll import HandPoll, Owner

from requite.errors import TransportError
from requite.transport.address import (
    Address,
    HostAddress,
    InprocAddress,
    IpcAddress,
    TcpAddress,
    TlsAddress,
    WsAddress,
)
from requite.transport.blocking import Attempt, BlockingListener

SIZES = [1, 65_535, 65_536, 65_537, 1 << 20]
_numbers = count()

PLACES: dict[str, Callable[[Path], Address]] = {
    "tcp4": lambda _folder: TcpAddress("127.0.0.1", 0),
    "tcp6": lambda _folder: TcpAddress("::1", 0),
    "ipc": lambda folder: IpcAddress(str(folder / f"{next(_numbers)}.sock")),
    "tls": lambda _folder: TlsAddress("127.0.0.1", 0),
    "ws": lambda _folder: WsAddress("127.0.0.1", 0, "/path"),
    "wss": lambda _folder: WsAddress("::1", 0, "/path", secure=True),
}


@pytest.fixture(scope="module")
def certificates(tmp_path_factory: pytest.TempPathFactory) -> Certificates:
    return Certificates(tmp_path_factory.mktemp("certificates"))


@pytest.fixture(autouse=True)
def nothing_left_open() -> Iterator[None]:
    with none_left():
        yield


@pytest.fixture
def folder() -> Iterator[Path]:
    with tempfile.TemporaryDirectory(prefix="rq") as path:
        yield Path(path)


class End(Owner):
    """One end of a connection."""

    def __init__(self, stream: Any, on_bytes: Callable[[End, bytes], None] | None) -> None:
        super().__init__()
        self.stream = stream
        self._on_bytes = on_bytes
        stream.start(self, "link")

    def received(self, link: object, chunk: bytes) -> None:
        assert "closed" not in self.events, "bytes after the end"
        super().received(link, chunk)
        if self._on_bytes is not None:
            self._on_bytes(self, chunk)

    @property
    def is_closed(self) -> bool:
        return "closed" in self.events


def echo(end: End, chunk: bytes) -> None:
    end.stream.write(chunk)


class PollBench:
    """A listener, its poll, and both ends of its connections."""

    def __init__(
        self,
        address: Address,
        certificates: Certificates,
        on_bytes: Callable[[End, bytes], None] | None = None,
    ) -> None:
        self.poll = HandPoll()
        self.accepted: list[End] = []
        self.failures: list[TransportError] = []
        self.certificates = certificates
        self.listener = self.listen(
            address, lambda stream: self.accepted.append(End(stream, on_bytes))
        )

    def listen(self, address: Address, on_stream: Callable[[Any], object]) -> BlockingListener:
        return BlockingListener(address, self.poll, on_stream, self.certificates.to_listen)

    def dial(self, address: Address) -> list[End]:
        """Start to dial; return a list that receives the end once it is connected."""
        ends: list[End] = []
        Attempt(
            address,
            self.poll,
            lambda _address, stream: ends.append(End(stream, None)),
            lambda _address, error: self.failures.append(error),
            self.certificates.to_dial,
        )
        return ends

    def connect(self) -> tuple[End, End]:
        n = len(self.accepted)
        ends = self.dial(self.listener.address)
        self.poll.turns(lambda: ends and len(self.accepted) > n)
        return ends[0], self.accepted[n]

    def close(self) -> None:
        self.listener.close()
        self.poll.turns(lambda: all(end.is_closed for end in self.accepted))
        assert not self.poll.watched


@pytest.fixture(params=PLACES)
def make_bench(
    request: pytest.FixtureRequest, folder: Path, certificates: Certificates
) -> Callable[..., PollBench]:
    def make_bench(on_bytes: Callable[[End, bytes], None] | None = None) -> PollBench:
        return PollBench(PLACES[request.param](folder), certificates, on_bytes)

    return make_bench


MakeBench = Callable[..., PollBench]


@pytest.mark.parametrize("size", SIZES)
def test_echo(make_bench: MakeBench, size: int) -> None:
    bench = make_bench(echo)
    end, _ = bench.connect()
    data = bytes(range(256)) * (size // 256) + bytes(size % 256)
    end.stream.write(b"")
    end.stream.write(data)
    bench.poll.turns(lambda: len(end.data) == size)
    assert end.data == data
    end.stream.abort()
    bench.close()


@pytest.mark.parametrize("closer", ["dialled", "accepted"])
def test_close_flushes_pending_output(make_bench: MakeBench, closer: str) -> None:
    bench = make_bench()
    end, served = bench.connect()
    near, far = (end, served) if closer == "dialled" else (served, end)
    data = bytes(range(256)) * (4 << 12)
    near.stream.write(data)
    near.stream.close()
    near.stream.write(b"too late")
    bench.poll.turns(lambda: near.is_closed and far.is_closed)
    assert far.data == data
    assert far.reason == ""
    assert near.events.count("closed") == far.events.count("closed") == 1
    bench.close()


@pytest.mark.parametrize("how", ["close", "abort"])
def test_a_stream_may_be_closed_as_soon_as_it_is_open(make_bench: MakeBench, how: str) -> None:
    bench = make_bench()
    ends: list[End] = []

    def speak_and_go(stream: Any) -> None:
        ends.append(End(stream, None))
        stream.write(b"last words")
        getattr(stream, how)()

    bench.listener.close()
    listener = bench.listen(bench.listener.address, speak_and_go)
    dialled = bench.dial(listener.address)
    bench.poll.turns(lambda: ends and ends[0].is_closed and (dialled or bench.failures))
    for end in dialled:
        bench.poll.turns(lambda end=end: end.is_closed)
        assert end.data == b"last words"
    is_secure = isinstance(listener.address, HostAddress) and listener.address.is_secure
    assert bool(dialled) == (how == "close" or not is_secure)
    listener.close()
    bench.close()


@pytest.mark.parametrize("aborter", ["dialled", "accepted"])
def test_abort_ends_both(make_bench: MakeBench, aborter: str) -> None:
    bench = make_bench()
    end, served = bench.connect()
    near, far = (end, served) if aborter == "dialled" else (served, end)
    near.stream.abort()
    near.stream.write(b"too late")
    near.stream.close()
    near.stream.pause_reading()
    near.stream.resume_reading()
    bench.poll.turns(lambda: near.is_closed and far.is_closed)
    assert not far.data
    assert near.events == far.events == ["closed"]
    bench.close()


def test_a_paused_reader_causes_back_pressure(make_bench: MakeBench) -> None:
    bench = make_bench()
    end, served = bench.connect()
    served.stream.pause_reading()
    piece = bytes(range(256)) * 256
    written = 0
    while "blocked" not in end.events:
        end.stream.write(piece)
        written += len(piece)
        bench.poll.turn(0)
        assert written < 64 << 20, "nothing pushes back"
    assert len(served.data) < written
    served.stream.resume_reading()
    bench.poll.turns(lambda: len(served.data) == written)
    assert served.data == piece * (written // len(piece))
    assert end.events == ["blocked", "writable"]
    end.stream.close()
    bench.close()


def test_many_connections(make_bench: MakeBench) -> None:
    bench = make_bench(echo)
    dialled = [bench.dial(bench.listener.address) for _ in range(150)]
    bench.poll.turns(lambda: all(dialled))
    for number, [end] in enumerate(dialled):
        end.stream.write(number.to_bytes(4, "big") * 100)
    bench.poll.turns(lambda: all(len(end.data) == 400 for [end] in dialled))
    for number, [end] in enumerate(dialled):
        assert end.data == number.to_bytes(4, "big") * 100
        end.stream.close()
    bench.close()


def test_peer_names_of_both_ends(make_bench: MakeBench) -> None:
    bench = make_bench()
    end, served = bench.connect()
    assert end.stream.peer_name == str(bench.listener.address)
    scheme = str(bench.listener.address).partition("://")[0]
    assert served.stream.peer_name.startswith(f"{scheme}://")
    end.stream.close()
    bench.close()


def test_an_address_in_use_is_refused_and_reusable_at_once(make_bench: MakeBench) -> None:
    bench = make_bench(echo)
    address = bench.listener.address
    end, served = bench.connect()
    with pytest.raises(TransportError, match="cannot listen at") as caught:
        bench.listen(address, lambda _stream: None)
    assert str(address) in str(caught.value)
    served.stream.close()  # the side that closes first enters TIME_WAIT
    bench.poll.turns(lambda: end.is_closed)
    bench.listener.close()
    bench.listener.close()
    again = bench.listen(address, lambda stream: bench.accepted.append(End(stream, echo)))
    ends = bench.dial(address)
    bench.poll.turns(lambda: ends)
    ends[0].stream.write(b"back")
    bench.poll.turns(lambda: ends[0].data)
    ends[0].stream.close()
    again.close()
    bench.close()


def test_a_closed_listener_refuses_connections(make_bench: MakeBench) -> None:
    bench = make_bench()
    end, _ = bench.connect()
    bench.listener.close()
    bench.dial(bench.listener.address)
    bench.poll.turns(lambda: bench.failures)
    assert str(bench.failures[0]).startswith(f"cannot connect to {bench.listener.address}: ")
    end.stream.write(b"still here")  # open connections remain
    bench.poll.turns(lambda: bench.accepted[0].data == b"still here")
    end.stream.close()
    bench.close()


def test_connections_are_rejected_without_descriptors(
    make_bench: MakeBench, caplog: pytest.LogCaptureFixture
) -> None:
    """Otherwise waiting connections would keep the poll ready, in a busy loop."""
    bench = make_bench()
    first, _ = bench.connect()
    address = bench.listener.address
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    peers = [raw(address) for _ in range(2)]
    lowest_free = os.dup(0)
    os.close(lowest_free)
    resource.setrlimit(resource.RLIMIT_NOFILE, (lowest_free, hard))
    try:
        for _ in range(3):
            bench.poll.turn(0)
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    for peer in peers:
        peer.settimeout(20)
        assert peer.recv(1) == b""
        peer.close()
    [record] = caplog.records
    assert record.getMessage().startswith(
        f"{address}: refusing connections: all {lowest_free:,} file descriptors"
        " are in use (RLIMIT_NOFILE); raise the limit with `ulimit -n`"
    )
    second, _ = bench.connect()
    for end in (first, second):
        end.stream.close()
    bench.close()


def raw(address: Address) -> socket.socket:
    if isinstance(address, IpcAddress):
        sock = socket.socket(socket.AF_UNIX)
        sock.connect(address.path)
        return sock
    assert isinstance(address, HostAddress)
    return socket.create_connection((address.host, address.port))


# --- single transports ----------------------------------------------------------------------------
def test_a_socket_file_is_removed_with_its_listener(
    folder: Path, certificates: Certificates
) -> None:
    path = folder / "one.sock"
    with socket.socket(socket.AF_UNIX) as dead:
        dead.bind(str(path))  # stale: no process listens
    bench = PollBench(IpcAddress(str(path)), certificates)
    end, _ = bench.connect()
    end.stream.close()
    bench.close()
    assert not path.exists()


def test_close_keeps_the_file_of_a_successor(folder: Path, certificates: Certificates) -> None:
    address = IpcAddress(str(folder / "one.sock"))
    first = PollBench(address, certificates)
    os.unlink(address.path)
    second = PollBench(address, certificates)
    first.close()
    assert os.path.exists(address.path)
    end, _ = second.connect()
    end.stream.close()
    second.close()


def test_a_fork_keeps_the_file_of_its_parent(folder: Path, certificates: Certificates) -> None:
    bench = PollBench(IpcAddress(str(folder / "one.sock")), certificates)
    for pollable, _ in list(bench.poll.watched.values()):
        pollable.discard()
    assert os.path.exists(bench.listener.address.path)  # type: ignore[union-attr]


def test_a_foreign_file_is_kept(folder: Path, certificates: Certificates) -> None:
    path = folder / "precious"
    path.write_text("precious")
    with pytest.raises(TransportError, match="not a socket"):
        PollBench(IpcAddress(str(path)), certificates)
    assert path.read_text() == "precious"


def test_the_wildcard_accepts_both_families(certificates: Certificates) -> None:
    bench = PollBench(TcpAddress("*", 0), certificates)
    port = bench.listener.address.port  # type: ignore[union-attr]
    for host in ("127.0.0.1", "::1", "localhost"):
        ends = bench.dial(TcpAddress(host, port))
        bench.poll.turns(lambda ends=ends: ends)
        ends[0].stream.close()
    bench.poll.turns(lambda: len(bench.accepted) == 3)
    assert len(bench.accepted) == 3
    bench.close()


def test_a_name_with_two_addresses_has_one_port(certificates: Certificates) -> None:
    bench = PollBench(TcpAddress("localhost", 0), certificates)
    port = bench.listener.address.port  # type: ignore[union-attr]
    assert port > 0
    end, _ = bench.connect()
    end.stream.close()
    bench.close()


@pytest.mark.parametrize(
    ("address", "why"),
    [
        (TcpAddress("no.such.host.invalid", 0), r"no\.such\.host\.invalid:0: "),
        (TcpAddress("x" * 70, 0), "not a valid host name"),
        (TcpAddress("192.0.2.1", 0), "cannot assign requested address"),
        (InprocAddress("name"), "objects of one event loop"),
    ],
)
def test_an_unusable_address_fails(certificates: Certificates, address: Address, why: str) -> None:
    with pytest.raises(TransportError, match=why):
        PollBench(address, certificates)
