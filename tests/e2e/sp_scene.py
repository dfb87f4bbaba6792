"""Fixtures: a worker over SP with a healthy client, which bad input must not affect."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from tests.support.descriptors import none_left
from tests.support.sp_hand import Hands, deep, hands
from tests.support.sp_live import WAIT_S, Loop
from tests.support.sp_wires import (
    WS,
    Place,
    Places,
    certificates,
    places,
)

from requite.shell.link import LinkLimits

__all__ = ["certificates", "hands", "places"]


LIMIT = 1 << 16
MESSAGE = deep(3) + b"Hello"
SILENCE_S = 0.2


@pytest.fixture(scope="module", autouse=True)
def warm() -> None:
    """Run each kind of event loop once; the first one keeps some descriptors open."""
    for uvloop in (False, True):
        Loop(uvloop=uvloop).close()


@pytest.fixture(autouse=True)
def no_leaks(hands: Hands) -> Iterator[None]:
    """Check that a test leaves no file descriptor open."""
    with none_left():
        yield
        hands.close()


both_loops = pytest.mark.parametrize(
    "loop", [False, True], ids=["asyncio", "uvloop"], indirect=True
)


@pytest.fixture
def loop(request: pytest.FixtureRequest, no_leaks: None) -> Iterator[Loop]:
    """An event loop of asyncio; with `both_loops`, also one of uvloop."""
    loop = Loop(uvloop=getattr(request, "param", False))
    yield loop
    loop.close()


class Scene:
    """A worker that listens at a place, and a healthy client of it."""

    def __init__(self, loop: Loop, place: Place) -> None:
        self.loop = loop
        self.place = loop.listening_worker(place, message_size_max=LIMIT)
        self.client = loop.client(self.place)
        self.assert_unharmed()

    def assert_unharmed(self) -> None:
        """Check that the healthy client gets a reply with one attempt."""
        reply = self.loop.do(self.client.call(b"are you well?", timeout=WAIT_S))
        assert (reply.body, reply.attempts) == (b"are you well?", 1)


@pytest.fixture
def scene(loop: Loop, places: Places) -> Scene:
    """A worker over TCP with its client."""
    return Scene(loop, places.new())


@pytest.fixture
def web(loop: Loop, places: Places) -> Scene:
    """A worker over WebSocket with its client."""
    return Scene(loop, places.new(WS))


@pytest.fixture
def short_handshake_timeout(monkeypatch: pytest.MonkeyPatch) -> None:
    """Reduce the handshake timeout, the time to wait for an SP header, to `SILENCE_S`."""
    limits = LinkLimits(handshake_timeout_s=SILENCE_S)
    monkeypatch.setattr("requite.speaks.sp.LINK_LIMITS", limits)
