"""Fixtures: a worker over SP with a good client, which bad input must not harm."""

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
    """Run each kind of event loop once: it keeps some descriptors while the process lives."""
    for uvloop in (False, True):
        Loop(uvloop=uvloop).close()


@pytest.fixture(autouse=True)
def no_leaks(hands: Hands) -> Iterator[None]:
    """See that a test leaves no file descriptor behind."""
    with none_left():
        yield
        hands.close()


both_loops = pytest.mark.parametrize(
    "loop", [False, True], ids=["asyncio", "uvloop"], indirect=True
)


@pytest.fixture
def loop(request: pytest.FixtureRequest, no_leaks: None) -> Iterator[Loop]:
    """An event loop: asyncio's, and with `both_loops` uvloop's, too."""
    loop = Loop(uvloop=getattr(request, "param", False))
    yield loop
    loop.close()


class Scene:
    """A worker that listens on a wire, and a good client."""

    def __init__(self, loop: Loop, place: Place) -> None:
        self.loop = loop
        self.place = loop.listening_worker(place, message_size_max=LIMIT)
        self.client = loop.client(self.place)
        self.assert_unharmed()

    def assert_unharmed(self) -> None:
        """See that the good client is served, at once and on its first connection."""
        reply = self.loop.do(self.client.call(b"are you well?", timeout=WAIT_S))
        assert (reply.body, reply.attempts) == (b"are you well?", 1)


@pytest.fixture
def scene(loop: Loop, places: Places) -> Scene:
    """A worker on TCP."""
    return Scene(loop, places.new())


@pytest.fixture
def web(loop: Loop, places: Places) -> Scene:
    """A worker on a WebSocket."""
    return Scene(loop, places.new(WS))


@pytest.fixture
def hasty(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let nobody wait long for a header."""
    limits = LinkLimits(handshake_timeout_s=SILENCE_S)
    monkeypatch.setattr("requite.speaks.sp.LINK_LIMITS", limits)
