"""Servers whose file descriptors are all used by idle connections: clients still get through."""

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
IDLE_CONNECTIONS: Final = 3 * LIMIT
# What docs/how-to/run-a-broker.md promises; handshakes may take 30 s.
THROUGH_WITHIN_S: Final = 5.0
SP_HELLO: Final = b"\x00SP\x00\x00\x30\x00\x00"  # a REQ's
ASKS_MMI: Final = (b"", b"MDPC01", b"mmi.service", b"echo")


class ShortServer(Process):
    """A server process with a limit of `LIMIT` file descriptors."""

    def __init__(self, kind: str, loop: str) -> None:
        super().__init__("-m", "tests.support.short_server", kind, str(LIMIT), loop)
        self.kind = kind
        self.endpoint = self.line()

    def accepts(self) -> bool:
        """Return whether a new connection gets an answer, or completes its handshake."""
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
def many_descriptors() -> Iterator[None]:
    """Raise this process's limit of descriptors, for all idle connections."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, min(hard, 2 * IDLE_CONNECTIONS)), hard))
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
@pytest.mark.usefixtures("many_descriptors")
def test_clients_get_through_although_idle_connections_use_all_descriptors(
    kind: str, loop: str, processes: list[Process]
) -> None:
    server = ShortServer(kind, loop)
    processes.append(server)
    with ExitStack() as stack:
        # The kernel establishes these connections even if the server does not accept them.
        for _ in range(IDLE_CONNECTIONS):
            stack.enter_context(RawPeer(server.endpoint))
        began = monotonic()
        while not server.accepts():
            assert monotonic() - began < THROUGH_WITHIN_S
    log = stopped(server)
    assert f" of {LIMIT} file descriptors are in use (RLIMIT_NOFILE); raise" in log
    assert "`ulimit -n`" in log
    # Closed connections are logged at intervals. The first may be a newcomer, if the server is
    # still accepting the others.
    assert "too many connections: " in log
    assert len(log.splitlines()) < 10 * (monotonic() - began + 1)
    assert "Traceback" not in log


@pytest.mark.parametrize("loop", ["asyncio", "uvloop"])
@pytest.mark.usefixtures("many_descriptors")
def test_peers_without_a_message_after_the_handshake_are_closed_too(
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
        while not server.accepts():
            assert monotonic() - began < THROUGH_WITHIN_S
        known.say(*ASKS_MMI)  # it has sent a message, so it stays connected
        assert known.receive()[-1] == b"404"
    assert ", which has sent no message: " in stopped(server)


@pytest.mark.parametrize("loop", ["asyncio", "uvloop"])
@pytest.mark.usefixtures("many_descriptors")
def test_newcomers_are_refused_if_active_peers_use_all_descriptors(
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
        while not server.accepts():
            assert monotonic() - began < THROUGH_WITHIN_S
    log = stopped(server)
    assert ": turned away " in log
    assert f" of {LIMIT} file descriptors are in use (RLIMIT_NOFILE)" in log


def stopped(server: ShortServer) -> str:
    """Stop the server with SIGTERM; return its log."""
    server.signal(signal.SIGTERM)
    code, log = server.ended()
    assert code == 0, log
    return log
