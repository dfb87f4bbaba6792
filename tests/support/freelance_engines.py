"""The engines of the Freelance pattern with virtual time; the test is network, user and peers.

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
    """What both have: connections whose place has a name."""

    def join(self, peer: str, identity: bytes = b"", place: Any = None) -> None:
        """Let a connection stand; by default its place is named like it."""
        assert peer not in self.peers
        self.peers[peer] = True
        self.feed(PeerJoined(peer, identity, peer if place is None else place))


class ClientBench(CallBench, _Joining):
    """A client of one of the models; keywords override fields of `ClientPolicy`, and of its
    `retry`."""

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
        """Make a call; `timeout` in seconds."""
        self.feed(Submit(token, "", body or (b"x",), self.now + timeout, idempotent))

    def requests_to(self, peer: str) -> list[Frames]:
        """Return the requests that a server was sent: all but pings."""
        return [message for message in self.to(peer) if message != [b"PING"]]

    def answer(self, peer: str, *body: bytes) -> None:
        """Let a server answer the newest request that it was sent, in the words of its model."""
        request = self.requests_to(peer)[-1]
        envelope = {"AgentClient": 1, "ShotgunClient": 2, "FailoverClient": 0}
        self.say(peer, [*request[: envelope[type(self.client).__name__]], *(body or (b"y",))])


class ServerBench(JobBench, _Joining):
    """A server; the test runs its handlers. Keywords override fields of `ServerPolicy`."""

    def __init__(self, *, chronicle: Chronicle | None = None, **policy: Any) -> None:
        super().__init__()
        self.engine = self.server = FreelanceServer(
            ServerPolicy(**{"notes": True, **policy}),
            service="echo",
            instance=b"a-server",
            chronicle=chronicle,
        )

    def request(self, peer: str, *message: bytes) -> ClientJob:
        """Let a request come; return the job it has become."""
        before = len(self.requests)
        self.say(peer, list(message))
        return self.came(before)
