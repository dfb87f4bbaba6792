"""What every transport does without an event loop, with both ends in one poll."""

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


class Place:
    """A listener, its poll, and both ends of whatever is connected to it."""

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
        """Begin to dial; the end is in the list when the connection stands."""
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
def make_place(
    request: pytest.FixtureRequest, folder: Path, certificates: Certificates
) -> Callable[..., Place]:
    def make_place(on_bytes: Callable[[End, bytes], None] | None = None) -> Place:
        return Place(PLACES[request.param](folder), certificates, on_bytes)

    return make_place


MakePlace = Callable[..., Place]


@pytest.mark.parametrize("size", SIZES)
def test_echo(make_place: MakePlace, size: int) -> None:
    place = make_place(echo)
    end, _ = place.connect()
    data = bytes(range(256)) * (size // 256) + bytes(size % 256)
    end.stream.write(b"")
    end.stream.write(data)
    place.poll.turns(lambda: len(end.data) == size)
    assert end.data == data
    end.stream.abort()
    place.close()


@pytest.mark.parametrize("closer", ["dialled", "accepted"])
def test_close_lets_everything_out_first(make_place: MakePlace, closer: str) -> None:
    place = make_place()
    end, served = place.connect()
    near, far = (end, served) if closer == "dialled" else (served, end)
    data = bytes(range(256)) * (4 << 12)
    near.stream.write(data)
    near.stream.close()
    near.stream.write(b"too late")
    place.poll.turns(lambda: near.is_closed and far.is_closed)
    assert far.data == data
    assert far.reason == ""
    assert near.events.count("closed") == far.events.count("closed") == 1
    place.close()


@pytest.mark.parametrize("how", ["close", "abort"])
def test_a_stream_may_be_closed_as_soon_as_it_is_there(make_place: MakePlace, how: str) -> None:
    place = make_place()
    ends: list[End] = []

    def speak_and_go(stream: Any) -> None:
        ends.append(End(stream, None))
        stream.write(b"last words")
        getattr(stream, how)()

    place.listener.close()
    listener = place.listen(place.listener.address, speak_and_go)
    dialled = place.dial(listener.address)
    place.poll.turns(lambda: ends and ends[0].is_closed and (dialled or place.failures))
    for end in dialled:
        place.poll.turns(lambda end=end: end.is_closed)
        assert end.data == b"last words"
    is_secure = isinstance(listener.address, HostAddress) and listener.address.is_secure
    assert bool(dialled) == (how == "close" or not is_secure)
    listener.close()
    place.close()


@pytest.mark.parametrize("aborter", ["dialled", "accepted"])
def test_abort_ends_both(make_place: MakePlace, aborter: str) -> None:
    place = make_place()
    end, served = place.connect()
    near, far = (end, served) if aborter == "dialled" else (served, end)
    near.stream.abort()
    near.stream.write(b"too late")
    near.stream.close()
    near.stream.pause_reading()
    near.stream.resume_reading()
    place.poll.turns(lambda: near.is_closed and far.is_closed)
    assert not far.data
    assert near.events == far.events == ["closed"]
    place.close()


def test_a_reader_that_pauses_pushes_back(make_place: MakePlace) -> None:
    place = make_place()
    end, served = place.connect()
    served.stream.pause_reading()
    piece = bytes(range(256)) * 256
    written = 0
    while "blocked" not in end.events:
        end.stream.write(piece)
        written += len(piece)
        place.poll.turn(0)
        assert written < 64 << 20, "nothing pushes back"
    assert len(served.data) < written
    served.stream.resume_reading()
    place.poll.turns(lambda: len(served.data) == written)
    assert served.data == piece * (written // len(piece))
    assert end.events == ["blocked", "writable"]
    end.stream.close()
    place.close()


def test_many_connections(make_place: MakePlace) -> None:
    place = make_place(echo)
    dialled = [place.dial(place.listener.address) for _ in range(150)]
    place.poll.turns(lambda: all(dialled))
    for number, [end] in enumerate(dialled):
        end.stream.write(number.to_bytes(4, "big") * 100)
    place.poll.turns(lambda: all(len(end.data) == 400 for [end] in dialled))
    for number, [end] in enumerate(dialled):
        assert end.data == number.to_bytes(4, "big") * 100
        end.stream.close()
    place.close()


def test_names_of_both_ends(make_place: MakePlace) -> None:
    place = make_place()
    end, served = place.connect()
    assert end.stream.peer_name == str(place.listener.address)
    scheme = str(place.listener.address).partition("://")[0]
    assert served.stream.peer_name.startswith(f"{scheme}://")
    end.stream.close()
    place.close()


def test_a_place_is_taken_once_and_free_again_at_once(make_place: MakePlace) -> None:
    place = make_place(echo)
    address = place.listener.address
    end, served = place.connect()
    with pytest.raises(TransportError, match="cannot listen at") as caught:
        place.listen(address, lambda _stream: None)
    assert str(address) in str(caught.value)
    served.stream.close()  # the side that closes first keeps TIME_WAIT
    place.poll.turns(lambda: end.is_closed)
    place.listener.close()
    place.listener.close()
    again = place.listen(address, lambda stream: place.accepted.append(End(stream, echo)))
    ends = place.dial(address)
    place.poll.turns(lambda: ends)
    ends[0].stream.write(b"back")
    place.poll.turns(lambda: ends[0].data)
    ends[0].stream.close()
    again.close()
    place.close()


def test_a_closed_listener_is_nobody(make_place: MakePlace) -> None:
    place = make_place()
    end, _ = place.connect()
    place.listener.close()
    place.dial(place.listener.address)
    place.poll.turns(lambda: place.failures)
    assert str(place.failures[0]).startswith(f"cannot connect to {place.listener.address}: ")
    end.stream.write(b"still here")  # connections that stand are left alone
    place.poll.turns(lambda: place.accepted[0].data == b"still here")
    end.stream.close()
    place.close()


def test_without_descriptors_connections_are_turned_away(
    make_place: MakePlace, caplog: pytest.LogCaptureFixture
) -> None:
    """A listener that left them waiting would make the poll return at once, for ever."""
    place = make_place()
    first, _ = place.connect()
    address = place.listener.address
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    peers = [raw(address) for _ in range(2)]
    lowest_free = os.dup(0)
    os.close(lowest_free)
    resource.setrlimit(resource.RLIMIT_NOFILE, (lowest_free, hard))
    try:
        for _ in range(3):
            place.poll.turn(0)
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
    second, _ = place.connect()
    for end in (first, second):
        end.stream.close()
    place.close()


def raw(address: Address) -> socket.socket:
    if isinstance(address, IpcAddress):
        sock = socket.socket(socket.AF_UNIX)
        sock.connect(address.path)
        return sock
    assert isinstance(address, HostAddress)
    return socket.create_connection((address.host, address.port))


# --- what only one of them does -------------------------------------------------------------------
def test_the_file_of_a_socket_goes_with_its_listener(
    folder: Path, certificates: Certificates
) -> None:
    path = folder / "one.sock"
    with socket.socket(socket.AF_UNIX) as dead:
        dead.bind(str(path))  # stale: nobody listens
    place = Place(IpcAddress(str(path)), certificates)
    end, _ = place.connect()
    end.stream.close()
    place.close()
    assert not path.exists()


def test_closing_leaves_a_successors_file_alone(folder: Path, certificates: Certificates) -> None:
    address = IpcAddress(str(folder / "one.sock"))
    first = Place(address, certificates)
    os.unlink(address.path)
    second = Place(address, certificates)
    first.close()
    assert os.path.exists(address.path)
    end, _ = second.connect()
    end.stream.close()
    second.close()


def test_a_fork_leaves_the_file_to_its_parent(folder: Path, certificates: Certificates) -> None:
    place = Place(IpcAddress(str(folder / "one.sock")), certificates)
    for pollable, _ in list(place.poll.watched.values()):
        pollable.discard()
    assert os.path.exists(place.listener.address.path)  # type: ignore[union-attr]


def test_a_file_of_somebody_else_is_left_alone(folder: Path, certificates: Certificates) -> None:
    path = folder / "precious"
    path.write_text("precious")
    with pytest.raises(TransportError, match="not a socket"):
        Place(IpcAddress(str(path)), certificates)
    assert path.read_text() == "precious"


def test_the_wildcard_takes_both_families(certificates: Certificates) -> None:
    place = Place(TcpAddress("*", 0), certificates)
    port = place.listener.address.port  # type: ignore[union-attr]
    for host in ("127.0.0.1", "::1", "localhost"):
        ends = place.dial(TcpAddress(host, port))
        place.poll.turns(lambda ends=ends: ends)
        ends[0].stream.close()
    place.poll.turns(lambda: len(place.accepted) == 3)
    assert len(place.accepted) == 3
    place.close()


def test_a_name_with_two_addresses_has_one_port(certificates: Certificates) -> None:
    place = Place(TcpAddress("localhost", 0), certificates)
    port = place.listener.address.port  # type: ignore[union-attr]
    assert port > 0
    end, _ = place.connect()
    end.stream.close()
    place.close()


@pytest.mark.parametrize(
    ("address", "why"),
    [
        (TcpAddress("no.such.host.invalid", 0), r"no\.such\.host\.invalid:0: "),
        (TcpAddress("x" * 70, 0), "not a valid host name"),
        (TcpAddress("192.0.2.1", 0), "cannot assign requested address"),
        (InprocAddress("name"), "objects of one event loop"),
    ],
)
def test_a_place_that_cannot_be_had(certificates: Certificates, address: Address, why: str) -> None:
    with pytest.raises(TransportError, match=why):
        Place(address, certificates)
