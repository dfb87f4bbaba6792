"""Servers without file descriptors left: strangers occupy all places, and clients get through."""

from __future__ import annotations

import resource
import signal
from collections.abc import Iterator
from contextlib import ExitStack
from time import monotonic
from typing import Final

import pytest
from tests.support.live import Process
from tests.support.raw_zmtp import RawPeer

pytestmark = pytest.mark.e2e

LIMIT: Final = 64
STRANGERS: Final = 3 * LIMIT
# What docs/how-to/run-a-broker.md promises; handshakes may take 30 s.
THROUGH_WITHIN_S: Final = 5.0
SP_HELLO: Final = b"\x00SP\x00\x00\x30\x00\x00"  # a REQ's
ASKS_MMI: Final = (b"", b"MDPC01", b"mmi.service", b"echo")


class ShortServer(Process):
    """A server that may open few files, in a process of its own."""

    def __init__(self, kind: str, loop: str) -> None:
        super().__init__("-m", "tests.support.short_server", kind, str(LIMIT), loop)
        self.kind = kind
        self.endpoint = self.line()

    def lets_in(self) -> bool:
        """Whether a newcomer gets through now: to an answer, or through the handshake."""
        try:
            with RawPeer(self.endpoint) as client:
                client.socket.settimeout(THROUGH_WITHIN_S)
                if self.kind in ("worker", "device"):
                    client.send(SP_HELLO)
                    return len(client.socket.recv(8)) == 8
                client.shake_hands(b"REQ" if self.kind == "queue" else b"DEALER")
                if self.kind == "broker":
                    client.say(*ASKS_MMI)
                    return client.receive()[-1] == b"404"
                return True
        except (EOFError, ConnectionError, TimeoutError):
            return False


@pytest.fixture
def roomy() -> Iterator[None]:
    """Enough descriptors here for all the strangers."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, min(hard, 2 * STRANGERS)), hard))
    yield
    resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


@pytest.mark.parametrize(
    ("kind", "loop"),
    [
        ("broker", "asyncio"),
        ("broker", "uvloop"),
        ("queue", "asyncio"),
        ("worker", "uvloop"),
        ("device", "asyncio"),
    ],
)
@pytest.mark.usefixtures("roomy")
def test_clients_get_through_although_strangers_have_taken_all_places(
    kind: str, loop: str, processes: list[Process]
) -> None:
    server = ShortServer(kind, loop)
    processes.append(server)
    with ExitStack() as stack:
        # To TCP they stand, whether the server has accepted them or not.
        for _ in range(STRANGERS):
            stack.enter_context(RawPeer(server.endpoint))
        began = monotonic()
        while not server.lets_in():
            assert monotonic() - began < THROUGH_WITHIN_S
    told = ended(server)
    assert f" of {LIMIT} file descriptors are in use (RLIMIT_NOFILE); raise" in told
    assert "`ulimit -n`" in told
    # Who gives way is told once in a while: the first may be a newcomer, where all others are
    # being accepted.
    assert "too many connections: " in told
    assert len(told.splitlines()) < 10 * (monotonic() - began + 1)
    assert "Traceback" not in told


@pytest.mark.parametrize("loop", ["asyncio", "uvloop"])
@pytest.mark.usefixtures("roomy")
def test_peers_that_shook_hands_and_said_nothing_give_way_too(
    loop: str, processes: list[Process]
) -> None:
    server = ShortServer("broker", loop)
    processes.append(server)
    with ExitStack() as stack:
        known = stack.enter_context(RawPeer(server.endpoint))
        known.shake_hands()
        known.say(*ASKS_MMI)
        assert known.receive()[-1] == b"404"
        for _ in range(LIMIT):
            stack.enter_context(RawPeer(server.endpoint)).shake_hands()
        began = monotonic()
        while not server.lets_in():
            assert monotonic() - began < THROUGH_WITHIN_S
        known.say(*ASKS_MMI)  # it has said who it is, and keeps its place
        assert known.receive()[-1] == b"404"
    assert ", which has sent no message: " in ended(server)


@pytest.mark.parametrize("loop", ["asyncio", "uvloop"])
@pytest.mark.usefixtures("roomy")
def test_when_all_places_are_taken_by_known_peers_newcomers_are_turned_away(
    loop: str, processes: list[Process]
) -> None:
    server = ShortServer("broker", loop)
    processes.append(server)
    with ExitStack() as stack:
        known: list[RawPeer] = []
        while True:
            peer = stack.enter_context(RawPeer(server.endpoint))
            peer.socket.settimeout(THROUGH_WITHIN_S)
            try:
                peer.shake_hands()
                peer.say(*ASKS_MMI)
                assert peer.receive()[-1] == b"404"
            except (EOFError, ConnectionError):
                break
            known.append(peer)
        assert LIMIT / 2 < len(known) < LIMIT
        known.pop().close()
        began = monotonic()
        while not server.lets_in():
            assert monotonic() - began < THROUGH_WITHIN_S
    told = ended(server)
    assert ": turned away " in told
    assert f" of {LIMIT} file descriptors are in use (RLIMIT_NOFILE)" in told


def ended(server: ShortServer) -> str:
    """Let it end in order; return what it has logged."""
    server.signal(signal.SIGTERM)
    code, told = server.ended()
    assert code == 0, told
    return told
