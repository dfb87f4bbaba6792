"""The contract between protocol logic and the world: inputs go in, effects come out.

An engine is one role of one protocol in plain Python. It owns no socket, clock, thread or source of
randomness. Its shell feeds it the inputs of a turn and performs the effects it answers with, in
order; then it asks `deadline()` and promises a `Wake` no earlier than that instant. The same
engine runs under asyncio, under a blocking shell and in the simulator.

Inputs and effects that every protocol needs are here. A protocol may add inputs of its own in its
package; effects are closed, because every shell must know them. An engine that is a worker and a
client in one answers with inputs of theirs: `Finished`, `Submit`, `Cancel`.

All are slotted objects: two per message are affordable (0.10 us each, where a `NamedTuple` costs
0.17; CPython 3.11), a compiler knows their fields, and they compare and print well in tests. Nobody
changes one that was handed on.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol, final

from requite.errors import CallError, StorageError
from requite.request import Partial, Reply, Status

Message = list[bytes]
"""The frames of one message as they are on the wire, without any ROUTER identity."""

Peer = Hashable
"""Whoever is at the other end of one connection; opaque to engines, compared by identity."""

Rng = Callable[[], float]
"""Randomness as an argument: uniform in [0, 1)."""


# --- inputs ---------------------------------------------------------------------------------------
@final
@dataclass(slots=True)
class PeerJoined:
    """A connection is up and its handshake done. `identity` names the peer uniquely while it lives:
    what it announced, or what the listener gave it. `place` is whatever the shell was told to call
    the address by which the peer came, the one listened at or the one dialled."""

    peer: Peer
    identity: bytes = b""
    place: Any = None


@final
@dataclass(slots=True)
class PeerLost:
    """A connection is gone; nothing sent to `peer` from now on arrives."""

    peer: Peer
    reason: str = ""


@final
@dataclass(slots=True)
class Received:
    """All messages that one read brought from one peer, in order.

    A batch, not a message: the engine's own look-up of the peer is paid once per read. An empty one
    says that part of a message came: the peer lives.
    """

    peer: Peer
    messages: Sequence[Message]


@final
@dataclass(slots=True)
class Submit:
    """The user makes a call. `token` is the user's handle: it comes back with every delivery.

    `deadline` is an instant (`inf`: none). With `idempotent` False the request is never sent again
    once it may have run (I11). `partials` tells whether the user takes partial replies; otherwise
    they are joined in front of the final one.
    """

    token: Any
    service: str
    frames: Sequence[bytes]
    deadline: float
    idempotent: bool = True
    idempotency_key: bytes = b""
    partials: bool = False


@final
@dataclass(slots=True)
class Cancel:
    """The user gives the call behind `token` up."""

    token: Any


@final
@dataclass(slots=True)
class PeerBlocked:
    """The peer pushes back: its output queue has passed the high-water mark. What is sent all the
    same is still queued, up to a hard limit at which the shell drops the peer."""

    peer: Peer


@final
@dataclass(slots=True)
class PeerWritable:
    """The peer's output queue has drained below the low-water mark again."""

    peer: Peer


@final
@dataclass(slots=True)
class Started:
    """The handler of the request delivered under `token` runs now; told only where a journal is
    kept, since handlers start at once unless they wait for a thread."""

    token: Any


@final
@dataclass(slots=True)
class Produced:
    """A handler yields a partial reply to the request delivered under `token`."""

    token: Any
    frames: Sequence[bytes]


@final
@dataclass(slots=True)
class Finished:
    """A handler has ended: with its reply (OK), or with a reason in the first frame."""

    token: Any
    frames: Sequence[bytes]
    status: Status = Status.OK


@final
@dataclass(slots=True)
class Progressed:
    """A handler vouches for itself: its lease is renewed (by `extend_s`, 0: by the usual)."""

    token: Any
    extend_s: float = 0.0


@final
@dataclass(slots=True)
class Stored:
    """What `Store` asked for under `ticket` is on the disk. `positions`: where each record is, for
    `Load`; opaque."""

    ticket: Any
    positions: Sequence[Any]


@final
@dataclass(slots=True)
class StoreFailed:
    """What `Store` asked for under `ticket` may be on the disk or not."""

    ticket: Any
    error: StorageError


@final
@dataclass(slots=True)
class Loaded:
    """The record that `Load` asked for under `ticket`."""

    ticket: Any
    payload: bytes


@final
@dataclass(slots=True)
class LoadFailed:
    """The record that `Load` asked for under `ticket` cannot be had."""

    ticket: Any
    error: StorageError


@final
@dataclass(slots=True)
class Drain:
    """Take nothing new, finish what is there, then say goodbye; `Stopped` follows."""


@final
@dataclass(slots=True)
class Wake:
    """The instant that `deadline()` named has come (an early one does no harm)."""


Input = Any
"""Anything an engine can be fed; a shell never needs to know more about it."""


# --- effects --------------------------------------------------------------------------------------
@final
@dataclass(slots=True)
class Send:
    """Send one message to a peer. Bodies are handed on as they came, never copied."""

    peer: Peer
    message: Sequence[bytes]


@final
@dataclass(slots=True)
class SendAll:
    """Send several messages to a peer, in order: what a `Send` of each does."""

    peer: Peer
    messages: Sequence[Sequence[bytes]]


@final
@dataclass(slots=True)
class Deliver:
    """Hand something to the user: a `Reply` or `Partial` for a caller's token, or, at a worker, the
    `Request` to run (then `token` is the name under which the handler must answer)."""

    token: Any
    what: Any


@final
@dataclass(slots=True)
class DeliverAll:
    """Hand several things to users, in order: what a `Deliver` of each pair does."""

    pairs: Sequence[tuple[Any, Any]]


@final
@dataclass(slots=True)
class Fail:
    """End the call behind `token` with an error."""

    token: Any
    error: CallError


@final
@dataclass(slots=True)
class Connect:
    """Open one more connection to the place the shell was configured with."""


@final
@dataclass(slots=True)
class Disconnect:
    """Send what is queued for the peer, then close its connection. `PeerLost` does not follow."""

    peer: Peer
    reason: str


@final
@dataclass(slots=True)
class StopReading:
    """Push back on one peer: leave unread what it sends. What had been read already still comes,
    once. When the peer closes the connection meanwhile, `PeerLost` follows, and what is unread is
    dropped. To say so twice, or of a connection that has ended, does nothing."""

    peer: Peer


@final
@dataclass(slots=True)
class ResumeReading:
    """Take it back: read from the peer again."""

    peer: Peer


@final
@dataclass(slots=True)
class Store:
    """Write records and make them durable, in the order of these effects; `Stored` follows. Nobody
    may be told of what they say before that."""

    ticket: Any
    records: Sequence[bytes]


@final
@dataclass(slots=True)
class Load:
    """Read the record at a position that `Stored` told; `Loaded` follows."""

    ticket: Any
    position: Any


@final
@dataclass(slots=True)
class CancelHandler:
    """Give up the work delivered under `token` (a worker's handler): nobody waits for it."""

    token: Any
    reason: str


@final
@dataclass(slots=True)
class Note:
    """Something worth a line in the journal, the log or a checker. `kind` is a fixed word, `facts`
    its particulars; engines make notes only when configured to."""

    kind: str
    facts: Mapping[str, Any]


@final
@dataclass(slots=True)
class Warn:
    """Something an operator should read, at a limited rate per `kind`."""

    kind: str
    text: str


@final
@dataclass(slots=True)
class Stopped:
    """The engine has drained: it will do nothing more."""


Effect = (
    Send
    | SendAll
    | Deliver
    | DeliverAll
    | Fail
    | Connect
    | Disconnect
    | StopReading
    | ResumeReading
    | Store
    | Load
    | Submit
    | Cancel
    | Finished
    | CancelHandler
    | Note
    | Warn
    | Stopped
)
Delivery = Reply | Partial


class Engine(Protocol):
    """One role of one protocol."""

    def handle(self, events: Sequence[Input], now: float) -> Iterable[Effect]:
        """Feed the inputs of a turn at the instant `now` (monotonic seconds); get what must be
        done, in order.

        What comes of several inputs is, for each peer and for each token, what comes of one after
        the other. But messages to one peer may leave as one `SendAll`, and what is for users as one
        `DeliverAll`, behind other effects: with 64 calls in flight that takes a third off what a
        call costs.

        Raises `LocalViolation` for an input that makes no sense here (a programmer's error), when
        all others have been handled. What came of them is then returned by the next call, be it
        one without inputs. Bytes from a peer never make it raise (I13).
        """
        ...

    def deadline(self) -> float | None:
        """Return the next instant the engine wants a `Wake`, or None."""
        ...

    def snapshot(self) -> Any:
        """Return a frozen view of the engine's tables for dashboards, `mmi.stats` and checkers."""
        ...
