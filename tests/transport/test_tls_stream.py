"""A TLS stream between a scripted peer and a recording stream below it."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from tests.support.certificates import Certificates
from tests.support.hand_poll import Owner

from requite.principal import Credential
from requite.transport.tls_session import TlsSession
from requite.transport.tls_stream import TlsStream


class StreamBelow:
    """The stream below TLS. `output` is what the peer has yet to read."""

    peer_name = "below"
    has_unread = True
    read_was_full = True
    peer_credential: Credential | None = None

    def __init__(self) -> None:
        self.output = b""
        self.calls: list[str] = []

    def start(self, owner: object, link: object) -> None:
        self.calls.append("start")

    def write(self, data: bytes) -> None:
        self.output += data

    def close(self) -> None:
        self.calls.append("close")

    def abort(self) -> None:
        self.calls.append("abort")

    def pause_reading(self) -> None:
        self.calls.append("pause")

    def resume_reading(self) -> None:
        self.calls.append("resume")


class Scene:
    """An accepted TLS stream, and the session of the dialling peer."""

    def __init__(self, certificates: Certificates) -> None:
        self.peer = certificates.to_dial.session_to("localhost")
        self.peer.begin()
        self.below = StreamBelow()
        self.owner = Owner()
        self.later: deque[Callable[[], object]] = deque()
        session = TlsSession(certificates.to_listen.listening_context(), None)
        self.stream = TlsStream(self.below, session, self.later.append)
        self.stream.start(self.owner, "link")

    def carry(self) -> bytes:
        """Exchange data until both sides are idle; return what the peer received."""
        got = b""
        while True:
            output, self.below.output = self.below.output, b""
            if output:
                got += self.peer.receive(output)
            chunk = self.peer.output()
            if chunk:
                self.stream.received(None, chunk)
            if not (output or chunk):
                return got


@pytest.fixture
def scene(tmp_path: Path) -> Scene:
    return Scene(Certificates(tmp_path))


def test_early_writes_are_sent_after_the_handshake(scene: Scene) -> None:
    scene.stream.write(b"one ")
    scene.stream.write(b"")
    scene.stream.write(b"two")
    assert scene.below.output == b""
    assert scene.carry() == b"one two"


def test_an_early_close_waits_for_pending_writes(scene: Scene) -> None:
    scene.stream.write(b"last words")
    scene.stream.close()
    scene.stream.write(b"too late")
    assert "close" not in scene.below.calls
    assert scene.carry() == b"last words"
    assert scene.peer.peer_has_ended
    assert scene.below.calls == ["start", "close"]
    scene.stream.closed(None, "")
    assert scene.owner.events == ["closed"]
    assert scene.owner.reason == ""


def test_only_the_end_is_reported_after_a_close(scene: Scene) -> None:
    scene.stream.write(b"last words")
    scene.stream.close()
    scene.stream.received(None, scene.peer.output())
    scene.peer.receive(scene.below.output)
    scene.peer.send(b"how do you do")  # in the same chunk as the last handshake message
    scene.stream.received(None, scene.peer.output())
    assert scene.below.calls == ["start", "close"]
    assert not scene.owner.data
    assert not scene.owner.events


def test_an_early_close_without_pending_writes_is_immediate(scene: Scene) -> None:
    scene.stream.close()
    assert scene.below.calls == ["start", "close"]


def test_a_reply_in_the_last_callback_is_sent_before_the_end(scene: Scene) -> None:
    scene.carry()
    scene.peer.send(b"last words")
    scene.peer.end()
    scene.stream.received(None, scene.peer.output())
    assert scene.owner.data == b"last words"
    scene.stream.write(b"heard")
    assert scene.below.calls == ["start"]
    scene.later.popleft()()
    assert scene.below.calls == ["start", "close"]
    assert scene.carry() == b"heard"
    assert scene.peer.peer_has_ended


def test_a_failure_is_reported_to_the_peer_and_then_to_the_owner(scene: Scene) -> None:
    scene.carry()
    scene.stream.received(None, b"\x17\x03\x03\x00\x20" + bytes(32))
    assert scene.below.calls == ["start", "abort"]
    assert scene.below.output
    assert not scene.owner.events
    scene.stream.received(None, b"whatever follows")
    scene.stream.write(b"nobody reads it")
    scene.stream.close()
    scene.stream.closed(None, "")
    assert scene.owner.events == ["closed"]
    assert "bad record mac" in scene.owner.reason
    assert scene.below.calls == ["start", "abort"]


def test_back_pressure_and_pauses_are_passed_through(scene: Scene) -> None:
    scene.carry()
    scene.stream.blocked(None)
    scene.stream.writable(None)
    scene.stream.pause_reading()
    scene.stream.resume_reading()
    assert scene.owner.events == ["blocked", "writable"]
    assert scene.below.calls == ["start", "pause", "resume"]
    assert scene.stream.peer_name == "below"
    assert scene.stream.has_unread
    assert scene.stream.read_was_full


@pytest.mark.parametrize("reason", ["", "the connection was lost: reset"])
def test_an_end_without_a_close_of_tls_is_reported(scene: Scene, reason: str) -> None:
    scene.carry()
    scene.stream.closed(None, reason)
    assert scene.owner.reason == (
        reason or "the peer closed the connection without TLS close_notify; data may be missing"
    )


def test_an_abort_in_the_handshake_is_reported(tmp_path: Path) -> None:
    outcomes: list[Any] = []
    session = Certificates(tmp_path).to_dial.session_to("localhost")
    stream = TlsStream(StreamBelow(), session, deque[Any]().append)
    stream.shake_hands(outcomes.append)
    stream.abort()
    stream.closed(None, "")
    assert outcomes == ["given up"]
