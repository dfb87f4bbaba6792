"""Freelance engines with virtual time; the test plays the network, the user and the peers.

bench = ClientBench(AgentClient, servers=2)
bench.join("a")
bench.submit(1, b"hi")
bench.answer("a", b"ho")                    # plays the server
assert bench.replies[1].body == b"ho"
"""

from __future__ import annotations

from math import inf
from typing import Any

from tests.support.engine_bench import Bench, CallBench, JobBench, with_retry

from requite.chronicle import Chronicle
from requite.core.jobs import ClientJob
from requite.engine import PeerJoined, Submit
from requite.protocols.freelance.client_base import FreelanceClient
from requite.protocols.freelance.policy import ClientPolicy, ServerPolicy
from requite.protocols.freelance.server import FreelanceServer

Frames = list[bytes]


class _Joining(Bench):
    """A bench whose connections have a place: the name of the configured address."""

    def join(self, peer: str, identity: bytes = b"", place: Any = None) -> None:
        """Open a connection; by default, `place` is the peer's name."""
        assert peer not in self.peers
        self.peers[peer] = True
        self.feed(PeerJoined(peer, identity, peer if place is None else place))


class ClientBench(CallBench, _Joining):
    """A client of one of the Freelance models. Keywords override fields of `ClientPolicy` and of
    its `retry`."""

    def __init__(
        self, kind: type[FreelanceClient], *, chronicle: Chronicle | None = None, **policy: Any
    ) -> None:
        super().__init__()
        self.engine = self.client = kind(
            ClientPolicy(**{"notes": True, **with_retry(policy)}),
            origin=b"a-client",
            chronicle=chronicle,
        )

    def submit(
        self, token: Any, *body: bytes, timeout: float = inf, idempotent: bool = True
    ) -> None:
        """Submit a call; `timeout` in seconds."""
        self.feed(Submit(token, "", body or (b"x",), self.now + timeout, idempotent))

    def requests_to(self, peer: str) -> list[Frames]:
        """Return the messages that were sent to a server, without PINGs."""
        return [message for message in self.to(peer) if message != [b"PING"]]

    def answer(self, peer: str, *body: bytes) -> None:
        """Send the client a server's reply to the server's newest request, with the envelope of the
        client's model."""
        request = self.requests_to(peer)[-1]
        envelope = {"AgentClient": 1, "ShotgunClient": 2, "FailoverClient": 0}
        self.say(peer, [*request[: envelope[type(self.client).__name__]], *(body or (b"y",))])


class ServerBench(JobBench, _Joining):
    """A server whose handlers the test runs. Keywords override fields of `ServerPolicy`."""

    def __init__(self, *, chronicle: Chronicle | None = None, **policy: Any) -> None:
        super().__init__()
        self.engine = self.server = FreelanceServer(
            ServerPolicy(**{"notes": True, **policy}),
            service="echo",
            instance=b"a-server",
            chronicle=chronicle,
        )

    def request(self, peer: str, *message: bytes) -> ClientJob:
        """Send the server a request; return its job."""
        before = len(self.requests)
        self.say(peer, list(message))
        return self.job_since(before)
