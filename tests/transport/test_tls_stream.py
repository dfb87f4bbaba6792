"""A stream over TLS between a peer written out by hand and a stream that writes down its calls."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from tests.support.certificates import Certificates
from tests.support.hand_poll import Owner

from requite.transport.tls_session import TlsSession
from requite.transport.tls_stream import TlsStream


class Below:
    """The stream that TLS runs over; `said` is what the peer gets to read."""

    peer_name = "below"

    def __init__(self) -> None:
        self.said = b""
        self.calls: list[str] = []

    def start(self, owner: object, link: object) -> None:
        self.calls.append("start")

    def write(self, data: bytes) -> None:
        self.said += data

    def close(self) -> None:
        self.calls.append("close")

    def abort(self) -> None:
        self.calls.append("abort")

    def pause_reading(self) -> None:
        self.calls.append("pause")

    def resume_reading(self) -> None:
        self.calls.append("resume")


class Scene:
    """An accepted stream, and the session of the peer that dialled."""

    def __init__(self, certificates: Certificates) -> None:
        self.peer = certificates.to_dial.session_to("localhost")
        self.peer.begin()
        self.below = Below()
        self.owner = Owner()
        self.later: deque[Callable[[], object]] = deque()
        session = TlsSession(certificates.to_listen.listening_context(), None)
        self.stream = TlsStream(self.below, session, self.later.append)
        self.stream.start(self.owner, "link")

    def carry(self) -> bytes:
        """Carry to and fro until nobody has anything to say; return what the peer got."""
        got = b""
        while True:
            said, self.below.said = self.below.said, b""
            if said:
                got += self.peer.receive(said)
            chunk = self.peer.output()
            if chunk:
                self.stream.received(None, chunk)
            if not (said or chunk):
                return got


@pytest.fixture
def scene(tmp_path: Path) -> Scene:
    return Scene(Certificates(tmp_path))


def test_what_is_written_early_leaves_when_hands_are_shaken(scene: Scene) -> None:
    scene.stream.write(b"one ")
    scene.stream.write(b"")
    scene.stream.write(b"two")
    assert scene.below.said == b""
    assert scene.carry() == b"one two"


def test_an_early_close_waits_for_what_was_written(scene: Scene) -> None:
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


def test_after_close_nothing_is_reported_but_the_end(scene: Scene) -> None:
    scene.stream.write(b"last words")
    scene.stream.close()
    scene.stream.received(None, scene.peer.output())
    scene.peer.receive(scene.below.said)
    scene.peer.send(b"how do you do")  # with the last message of its handshake, in one chunk
    scene.stream.received(None, scene.peer.output())
    assert scene.below.calls == ["start", "close"]
    assert not scene.owner.data
    assert not scene.owner.events


def test_an_early_close_with_nothing_to_say_waits_for_nobody(scene: Scene) -> None:
    scene.stream.close()
    assert scene.below.calls == ["start", "close"]


def test_the_answer_to_the_peers_last_words_leaves_before_the_end(scene: Scene) -> None:
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


def test_a_failure_is_told_to_the_peer_and_then_to_the_owner(scene: Scene) -> None:
    scene.carry()
    scene.stream.received(None, b"\x17\x03\x03\x00\x20" + bytes(32))
    assert scene.below.calls == ["start", "abort"]
    assert scene.below.said
    assert not scene.owner.events
    scene.stream.received(None, b"whatever follows")
    scene.stream.write(b"nobody reads it")
    scene.stream.close()
    scene.stream.closed(None, "")
    assert scene.owner.events == ["closed"]
    assert "bad record mac" in scene.owner.reason
    assert scene.below.calls == ["start", "abort"]


def test_pressure_and_pauses_pass(scene: Scene) -> None:
    scene.carry()
    scene.stream.blocked(None)
    scene.stream.writable(None)
    scene.stream.pause_reading()
    scene.stream.resume_reading()
    assert scene.owner.events == ["blocked", "writable"]
    assert scene.below.calls == ["start", "pause", "resume"]
    assert scene.stream.peer_name == "below"


@pytest.mark.parametrize("reason", ["", "the connection was lost: reset"])
def test_an_end_that_tls_did_not_announce(scene: Scene, reason: str) -> None:
    scene.carry()
    scene.stream.closed(None, reason)
    assert scene.owner.reason == (
        reason or "the peer closed the connection without TLS close_notify; data may be missing"
    )


def test_who_shakes_hands_first_is_told_of_an_end_before(tmp_path: Path) -> None:
    outcomes: list[Any] = []
    session = Certificates(tmp_path).to_dial.session_to("localhost")
    stream = TlsStream(Below(), session, deque[Any]().append)
    stream.shake_hands(outcomes.append)
    stream.abort()
    stream.closed(None, "")
    assert outcomes == ["given up"]
