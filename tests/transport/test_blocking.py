"""Streams and dial attempts without an event loop, driven by a manual poll."""

from __future__ import annotations

import os
import socket
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.support.hand_poll import HandPoll, Owner

from requite.errors import TransportError
from requite.transport.address import Address, InprocAddress, IpcAddress, TcpAddress
from requite.transport.blocking import Attempt, BlockingStream
from requite.transport.sockets import READ_SIZE


@pytest.fixture
def poll() -> HandPoll:
    return HandPoll()


@pytest.fixture
def pair(poll: HandPoll) -> Iterator[tuple[BlockingStream, Owner, socket.socket]]:
    ours, theirs = socket.socketpair()
    ours.setblocking(False)
    theirs.settimeout(20)
    stream, owner = BlockingStream(ours, "peer", poll), Owner()
    stream.start(owner, "link")
    yield stream, owner, theirs
    stream.abort()
    theirs.close()


def read_all(sock: socket.socket) -> bytes:
    data = bytearray()
    while chunk := sock.recv(1 << 20):
        data += chunk
    return bytes(data)


def test_a_write_is_sent_in_the_callers_thread(pair: Any) -> None:
    stream, _, theirs = pair
    stream.write(b"hello")
    stream.write(b"")
    assert theirs.recv(100) == b"hello"  # without a turn of the poll


def test_incoming_bytes_are_read(pair: Any, poll: HandPoll) -> None:
    _, owner, theirs = pair
    theirs.sendall(b"hello")
    poll.turn()
    assert owner.data == b"hello"


def test_unsent_bytes_are_buffered_and_cause_back_pressure(pair: Any, poll: HandPoll) -> None:
    stream, owner, theirs = pair
    piece = bytes(range(256)) * 256
    written = b""
    while "blocked" not in owner.events:
        stream.write(piece)
        written += piece
    stream.write(piece)  # is accepted despite the back-pressure
    written += piece
    assert owner.events == ["blocked"]
    got = bytearray()
    theirs.setblocking(False)
    while len(got) < len(written):
        poll.turn(0)
        try:
            got += theirs.recv(1 << 16)
        except BlockingIOError:
            continue
    assert got == written
    poll.settle()
    assert owner.events == ["blocked", "writable"]
    stream.write(b"more")
    assert owner.events == ["blocked", "writable"]


def test_close_flushes_pending_output(pair: Any, poll: HandPoll) -> None:
    stream, owner, theirs = pair
    theirs.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    stream.write(b"x" * (1 << 20))
    stream.close()
    stream.write(b"too late")
    assert owner.events == ["blocked"]  # no event was reported from inside a call
    got = bytearray()
    while not owner.reason and "closed" not in owner.events:
        got += theirs.recv(1 << 16)
        poll.turn(0)
    got += read_all(theirs)
    assert got == b"x" * (1 << 20)
    assert owner.events[-1] == "closed"


def test_a_close_by_the_peer_is_reported_once(pair: Any, poll: HandPoll) -> None:
    stream, owner, theirs = pair
    theirs.sendall(b"last words")
    theirs.close()
    poll.turns(lambda: "closed" in owner.events)
    assert owner.data == b"last words"
    assert owner.reason == ""
    stream.close()
    stream.abort()
    stream.write(b"too late")
    poll.settle()
    assert owner.events == ["closed"]
    assert not poll.watched


def test_a_write_to_a_broken_connection_reports_the_end_later(pair: Any, poll: HandPoll) -> None:
    stream, owner, theirs = pair
    theirs.close()
    stream.write(b"x")
    assert owner.events == []
    poll.settle()
    assert owner.events == ["closed"]
    assert owner.reason.startswith("the connection was lost: ")


def test_a_paused_stream_leaves_incoming_bytes_in_the_kernel(pair: Any, poll: HandPoll) -> None:
    stream, owner, theirs = pair
    stream.pause_reading()
    theirs.sendall(b"x")
    poll.turn(0)
    assert owner.data == b""
    assert stream.has_unread
    stream.resume_reading()
    poll.turn()
    assert owner.data == b"x"
    assert not stream.has_unread
    assert not stream.read_was_full
    theirs.sendall(bytes(READ_SIZE + 1))
    poll.turn()
    assert stream.read_was_full
    assert stream.has_unread


# --- attempts -------------------------------------------------------------------------------------
class Outcome:
    def __init__(self, address: Address, poll: HandPoll) -> None:
        self.streams: list[Any] = []
        self.owners: list[Owner] = []
        self.errors: list[TransportError] = []
        self.attempt = Attempt(
            address,
            poll,
            self._done,
            lambda _address, error: self.errors.append(error),
        )
        assert not self.streams  # nothing is reported from inside the constructor
        assert not self.errors
        self._poll = poll

    def wait(self) -> None:
        self._poll.turns(lambda: self.streams or self.errors)

    def _done(self, address: Address, stream: Any) -> None:
        assert address == self.attempt.address
        self.owners.append(Owner())
        stream.start(self.owners[-1], "link")
        self.streams.append(stream)

    def end(self) -> None:
        for stream in self.streams:
            stream.abort()
        self._poll.settle()
        assert all(owner.events == ["closed"] for owner in self.owners)


@pytest.mark.parametrize("host", ["127.0.0.1", "::1", "localhost"])
def test_an_attempt_connects(poll: HandPoll, host: str) -> None:
    family = socket.AF_INET6 if host == "::1" else socket.AF_INET
    bind = "127.0.0.1" if host == "localhost" else host  # dialling ::1 fails
    with socket.create_server((bind, 0), family=family) as server:
        outcome = Outcome(TcpAddress(host, server.getsockname()[1]), poll)
        outcome.wait()
        [fd] = poll.watched
        with socket.socket(fileno=os.dup(fd)) as sock:
            assert sock.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY)
            assert not os.get_blocking(fd)
        outcome.end()
    assert not poll.watched


def test_an_attempt_without_a_listener_is_refused(poll: HandPoll) -> None:
    port = 1  # tcpmux: nothing listens there, and it is never assigned as an ephemeral port
    for host in ("127.0.0.1", "localhost"):
        outcome = Outcome(TcpAddress(host, port), poll)
        outcome.wait()
        assert str(outcome.errors[0]) == (
            f"cannot connect to tcp://{host}:{port}: connection refused"
        )
    assert not poll.watched


def test_an_attempt_over_ipc(poll: HandPoll) -> None:
    with tempfile.TemporaryDirectory(prefix="rq") as folder:
        path = str(Path(folder) / "sock")
        nobody = Outcome(IpcAddress(path), poll)
        nobody.wait()
        assert "no such file" in str(nobody.errors[0])
        with socket.socket(socket.AF_UNIX) as server:
            server.bind(path)
            server.listen()
            outcome = Outcome(IpcAddress(path), poll)
            outcome.wait()
            assert outcome.streams[0].peer_name == f"ipc://{path}"
            outcome.end()


def test_an_attempt_at_a_full_backlog_fails_at_once(poll: HandPoll) -> None:
    with tempfile.TemporaryDirectory(prefix="rq") as folder:
        path = str(Path(folder) / "sock")
        with socket.socket(socket.AF_UNIX) as server:
            server.bind(path)
            server.listen(0)
            outcomes = [Outcome(IpcAddress(path), poll) for _ in range(5)]
            for outcome in outcomes:
                outcome.wait()
            assert any("backlog" in str(error) for each in outcomes for error in each.errors)
            for outcome in outcomes:
                outcome.end()


def test_an_attempt_over_inproc_is_refused_with_a_hint(poll: HandPoll) -> None:
    outcome = Outcome(InprocAddress("name"), poll)
    outcome.wait()
    assert "one event loop" in str(outcome.errors[0])


def test_a_cancelled_attempt_fails_once(poll: HandPoll) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        outcome = Outcome(TcpAddress("127.0.0.1", server.getsockname()[1]), poll)
        outcome.attempt.give_up("no answer within 10 s")
        outcome.attempt.give_up("again")
        poll.settle()
        assert not outcome.streams
        [error] = outcome.errors
        assert "no answer within 10 s" in str(error)
    assert not poll.watched
