"""A Majordomo client engine with virtual time. The test plays the broker; connections are names.

    bench = ClientBench()
    bench.submit("a", b"hi")
    link = bench.join()                      # opens the connection that the engine requested
    bench.answer(bench.sent[-1], b"ho")      # plays the broker
    assert bench.replies["a"].body == b"ho"

The bench decodes each message that the engine sends. It asserts the invariants of a client: a call
ends once, partial replies are contiguous and precede the end (I1, I5), and the engine sends only on
open connections.
"""

from __future__ import annotations

from collections import defaultdict
from math import inf
from typing import Any, NamedTuple

from requite.chronicle import Chronicle
from requite.engine import (
    Cancel,
    Cause,
    Connect,
    Deliver,
    Disconnect,
    Drain,
    Effect,
    Fail,
    Note,
    PeerJoined,
    PeerLost,
    Received,
    Send,
    Stopped,
    Submit,
    Wake,
    Warn,
)
from requite.errors import CallError
from requite.protocols.majordomo.calls import ClientPolicy
from requite.protocols.majordomo.client import client_engine
from requite.protocols.majordomo.dialects import by_version
from requite.protocols.majordomo.wire import (
    ClientCancel,
    ClientFinal,
    ClientHeartbeat,
    ClientPartial,
    ClientRequest,
)
from requite.request import Partial, Reply, RetryPolicy, Status

ORIGIN = b"a-client"


class Sent(NamedTuple):
    """A command that the client sent, and the name of the connection."""

    link: str
    command: Any


class ClientBench:
    """One client under test; `retry` overrides fields of `RetryPolicy`, other keywords override
    fields of `ClientPolicy`."""

    def __init__(
        self,
        version: str = "0.3",
        *,
        retry: dict[str, Any] | None = None,
        chronicle: Chronicle | None = None,
        **policy: Any,
    ) -> None:
        self.dialect = by_version(version)
        self.policy = ClientPolicy(
            retry=RetryPolicy(**{"jitter": 0.0, **(retry or {})}), **{"notes": True, **policy}
        )
        self.client = client_engine(
            self.dialect,
            self.policy,
            rng=lambda: 0.5,
            first_sequence=0xFFFF_FFFE,
            origin=ORIGIN,
            chronicle=chronicle,
        )
        self.now = 100.0
        self.links: list[str] = []  # open connections, oldest first
        self.dialling = 0
        self.sent: list[Sent] = []
        self.partials: dict[Any, list[Partial]] = defaultdict(list)
        self.replies: dict[Any, Reply] = {}
        self.errors: dict[Any, CallError] = {}
        self.disconnected: dict[str, str] = {}
        self.causes: dict[str, Cause] = {}
        self.notes: list[Note] = []
        self.warnings: list[Warn] = []
        self.stopped = False
        self._joined = 0

    # --- the user -----------------------------------------------------------------------------
    def submit(
        self,
        token: Any,
        body: bytes = b"x",
        *,
        service: str = "echo",
        timeout: float = inf,
        idempotent: bool = True,
        key: bytes = b"",
        partials: bool = False,
    ) -> None:
        """Submit a call; `timeout` in seconds."""
        deadline = self.now + timeout
        self.feed(Submit(token, service, [body], deadline, idempotent, key, partials))

    def cancel(self, token: Any) -> None:
        """Cancel a call."""
        self.feed(Cancel(token))

    def drain(self) -> None:
        """Ask the client to drain."""
        self.feed(Drain())

    # --- the network --------------------------------------------------------------------------
    def join(self) -> str:
        """Open a connection that the client requested; return its name."""
        assert self.dialling, "no connection was asked for"
        self.dialling -= 1
        self._joined += 1
        link = f"link-{self._joined}"
        self.links.append(link)
        self.feed(PeerJoined(link))
        return link

    def lose(self, link: str | None = None) -> None:
        """Report that a connection was lost, by default the newest."""
        link = link or self.links[-1]
        self.links.remove(link)
        self.feed(PeerLost(link, "reset"))

    # --- the broker ---------------------------------------------------------------------------
    def say(self, *messages: list[bytes], link: str | None = None) -> None:
        """Send the client messages from the broker, all in one read."""
        self.feed(Received(link or self.links[-1], list(messages)))

    def answer(self, sent: Sent, body: bytes = b"y", status: int = 0, attempts: int = 1) -> None:
        """Send the client the FINAL that answers a request."""
        self.say(self.final(sent, body, status, attempts), link=sent.link)

    def final(
        self, sent: Sent, body: bytes = b"y", status: int = 0, attempts: int = 1
    ) -> list[bytes]:
        """Return an encoded FINAL that answers a request."""
        request = sent.command
        return self.dialect.encode(
            ClientFinal(request.service, [body], request.request_id, status, attempts)
        )

    def partial(self, sent: Sent, body: bytes, index: int) -> list[bytes]:
        """Return an encoded PARTIAL that answers a request."""
        request = sent.command
        return self.dialect.encode(
            ClientPartial(request.service, [body], request.request_id, index)
        )

    # --- time ---------------------------------------------------------------------------------
    def advance(self, seconds: float) -> None:
        """Advance the clock, with a wake-up at each deadline of the client."""
        end = self.now + seconds
        while (at := self.client.deadline()) is not None and at <= end:
            self.now = max(self.now, at)
            self.feed(Wake())
        self.now = end

    def freeze(self, seconds: float) -> None:
        """Advance the clock with a single wake-up, at the end."""
        self.now += seconds
        self.feed(Wake())

    # --- effects ------------------------------------------------------------------------------
    @property
    def requests(self) -> list[Sent]:
        """The REQUESTs that were sent."""
        return [sent for sent in self.sent if isinstance(sent.command, ClientRequest)]

    @property
    def cancels(self) -> list[int]:
        """The request ids for which a CANCEL was sent."""
        return [s.command.request_id for s in self.sent if isinstance(s.command, ClientCancel)]

    @property
    def heartbeats(self) -> int:
        """The number of HEARTBEATs that were sent."""
        return sum(isinstance(s.command, ClientHeartbeat) for s in self.sent)

    def bodies(self) -> list[bytes]:
        """Return the first frame of each REQUEST, in order."""
        return [sent.command.body[0] for sent in self.requests]

    def assert_empty(self) -> None:
        """Assert that no table holds a call (I9)."""
        snapshot = self.client.snapshot()
        assert (snapshot.held, snapshot.sent, snapshot.resting, snapshot.slots_taken) == (0,) * 4
        assert not self.client.calls

    def feed(self, event: Any) -> None:
        """Feed the client one input and record its effects."""
        for effect in self.client.handle([event], self.now):
            self._perform(effect)

    def _perform(self, effect: Effect) -> None:
        match effect:
            case Send(peer, message):
                assert peer in self.links, f"{message} was sent to {peer}, which does not stand"
                command = self.dialect.decode_from_client(list(message))
                self.sent.append(Sent(str(peer), command))
            case Deliver(token, Partial() as partial):
                self._assert_open(token)
                assert partial.index == len(self.partials[token])
                self.partials[token].append(partial)
            case Deliver(token, Reply() as reply):
                self._assert_open(token)
                assert reply.status is Status.OK
                self.replies[token] = reply
            case Fail(token, error):
                self._assert_open(token)
                self.errors[token] = error
            case Connect():
                self.dialling += 1
            case Disconnect(peer, reason, cause):
                self.links.remove(str(peer))
                self.disconnected[str(peer)] = reason
                self.causes[str(peer)] = cause
            case Note():
                self.notes.append(effect)
            case Warn():
                self.warnings.append(effect)
            case Stopped():
                self.stopped = True
            case _:
                raise AssertionError(f"a client has no business with {effect}")

    def _assert_open(self, token: Any) -> None:
        assert token not in self.replies, f"{token} has its reply already"
        assert token not in self.errors, f"{token} has failed already"


def connected(**settings: object) -> ClientBench:
    """Return a client with an open connection, over which one heartbeat of the broker arrived."""
    bench = ClientBench(**settings)  # type: ignore[arg-type]
    bench.submit("given up")
    bench.cancel("given up")
    bench.join()
    bench.say(bench.dialect.encode(ClientHeartbeat(1000)))
    bench.errors.clear()
    bench.notes.clear()
    return bench
