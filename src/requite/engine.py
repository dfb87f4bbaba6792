"""The contract between protocol logic and the world: inputs go in, effects come out.

An engine is one role of one protocol in plain Python. It has no socket, clock, thread or source of
randomness. Its shell feeds it the inputs of a turn and performs the returned effects in order; then
it calls `deadline()` and sends a `Wake` no earlier than that instant. The same engine runs under
asyncio, under a blocking shell and in the simulator.

This module has the inputs and effects of all protocols. A protocol may add inputs in its package;
the set of effects is closed, because every shell must know them. An engine that is both worker and
client returns inputs of these roles as effects: `Finished`, `Submit`, `Cancel`.

All are slotted objects: two per message are affordable (0.10 us each, where a `NamedTuple` costs
0.17; CPython 3.11), a compiler knows their fields, and they compare and print well in tests. Treat
them as immutable once passed on.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Any, Protocol, final

from requite.errors import CallError, StorageError
from requite.principal import ANYONE, Principal
from requite.request import Partial, Reply, Status

Message = list[bytes]
"""The frames of one message as on the wire, without a ROUTER identity."""

Carried = Any
"""What arrives as a message: a `Message`, or from a peer in the same process any object."""

Peer = Hashable
"""The peer of one connection; opaque to engines, compared by identity."""

Rng = Callable[[], float]
"""Randomness as an argument: uniform in [0, 1)."""


# --- inputs ---------------------------------------------------------------------------------------
@final
@dataclass(slots=True)
class PeerJoined:
    """A connection has completed its handshake. `identity` is unique among the connected peers:
    announced by the peer, or assigned by the listener. `place` is the shell's configured name of
    the address that it listened at or dialled. `principal` is the owner of the connection,
    `features` the optional features that the peer has announced."""

    peer: Peer
    identity: bytes = b""
    place: Any = None
    principal: Principal = ANYONE
    features: frozenset[str] = frozenset()


@final
@dataclass(slots=True)
class RightsChanged:
    """The rights of some principals have changed: end what they no longer may do."""


@final
@dataclass(slots=True)
class PeerLost:
    """A connection has ended; messages sent to `peer` from now on are dropped."""

    peer: Peer
    reason: str = ""


@final
@dataclass(slots=True)
class Received:
    """All messages of one read from one peer, in order.

    A batch, so that the engine looks the peer up once per read. An empty batch means that part of a
    message arrived: the peer is alive. `behind_s`: how long ago everything that had come from the
    peer was handled for the last time, if it is read in turn (`ReadInTurn`) and had to wait. The
    messages may have waited for as long, or for less.
    """

    peer: Peer
    messages: Sequence[Carried]
    behind_s: float = 0.0


@final
@dataclass(slots=True)
class Submit:
    """The user makes a call. `token` is the user's handle, which every delivery carries.

    `deadline` is an instant (`inf`: none). With `idempotent` False the request is never resent once
    it may have run (I11). With `partials` the user gets partial replies; otherwise they are
    prepended to the final reply. `principal`: the user for whom the call is made, such as the owner
    of a stored request; the peer decides whether that is allowed. Empty, or if the protocol or the
    peer knows no users: for the caller itself. `trace`: its trace context
    (`requite.trace_context`), for protocols that carry it.
    """

    token: Any
    service: str
    frames: Sequence[bytes]
    deadline: float
    idempotent: bool = True
    idempotency_key: bytes = b""
    partials: bool = False
    principal: bytes = b""
    trace: bytes = b""


@final
@dataclass(slots=True)
class Cancel:
    """The user cancels the call of `token`."""

    token: Any


@final
@dataclass(slots=True)
class PeerBlocked:
    """The peer pushes back: its output queue has passed the high-water mark. Further messages are
    still queued, up to a hard limit at which the shell drops the peer."""

    peer: Peer


@final
@dataclass(slots=True)
class PeerWritable:
    """The peer's output queue has drained below the low-water mark again."""

    peer: Peer


@final
@dataclass(slots=True)
class Started:
    """The handler of the request delivered under `token` has started. Sent only if there is a
    journal, since handlers start at once unless they wait for a thread."""

    token: Any


@final
@dataclass(slots=True)
class Produced:
    """A handler has yielded a partial reply to the request delivered under `token`."""

    token: Any
    frames: Sequence[bytes]


@final
@dataclass(slots=True)
class Finished:
    """A handler has ended, with its reply (OK) or with a reason in the first frame."""

    token: Any
    frames: Sequence[bytes]
    status: Status = Status.OK


@final
@dataclass(slots=True)
class Progressed:
    """A handler renews its lease by `extend_s` seconds (0: by the default)."""

    token: Any
    extend_s: float = 0.0


@final
@dataclass(slots=True)
class Stored:
    """The records of the `Store` with this `ticket` are on disk. `positions`: the position of each
    record, for `Load`; opaque."""

    ticket: Any
    positions: Sequence[Any]


@final
@dataclass(slots=True)
class StoreFailed:
    """The `Store` with this `ticket` failed; its records may or may not be on disk."""

    ticket: Any
    error: StorageError


@final
@dataclass(slots=True)
class Loaded:
    """The record that the `Load` with this `ticket` has read."""

    ticket: Any
    payload: bytes


@final
@dataclass(slots=True)
class LoadFailed:
    """The `Load` with this `ticket` failed."""

    ticket: Any
    error: StorageError


@final
@dataclass(slots=True)
class Drain:
    """Accept no new work, finish the current work, then disconnect; `Stopped` follows."""


@final
@dataclass(slots=True)
class Wake:
    """The instant that `deadline()` returned has passed; an early `Wake` is harmless."""


Input = Any
"""An input of an engine; opaque to shells."""


# --- effects --------------------------------------------------------------------------------------
@final
@dataclass(slots=True)
class Send:
    """Send one message to a peer. Bodies are never copied."""

    peer: Peer
    message: Sequence[bytes]


@final
@dataclass(slots=True)
class SendAll:
    """Send several messages to a peer, in order, as a `Send` of each would."""

    peer: Peer
    messages: Sequence[Sequence[bytes]]


@final
@dataclass(slots=True)
class Deliver:
    """Deliver to the user a `Reply` or `Partial` for a call's token; or, at a worker, the `Request`
    to run (then the handler's inputs carry `token`)."""

    token: Any
    what: Any


@final
@dataclass(slots=True)
class DeliverAll:
    """Deliver several pairs of token and object, in order, as a `Deliver` of each would."""

    pairs: Sequence[tuple[Any, Any]]


@final
@dataclass(slots=True)
class Fail:
    """End the call of `token` with an error."""

    token: Any
    error: CallError


@final
@dataclass(slots=True)
class Connect:
    """Open another connection to the address that the shell is configured with."""


class Cause(Enum):
    """Why an engine disconnects a peer."""

    DONE = "done"  # by its own decision: it stops, or needs the connection no longer
    SILENT = "silent"  # nothing has come from the peer for too long
    FAULTY = "faulty"  # the peer broke the protocol
    DENIED = "denied"  # the peer has no right to what it wants


@final
@dataclass(slots=True)
class Disconnect:
    """Send the peer's queued messages, then close its connection. `PeerLost` does not follow.
    `reason` is for people."""

    peer: Peer
    reason: str
    cause: Cause


@final
@dataclass(slots=True)
class StopReading:
    """Push back on one peer: stop reading from its connection. Messages already read still arrive,
    once. If the peer closes the connection meanwhile, `PeerLost` follows and unread data are
    dropped. A second `StopReading`, or one for an ended connection, does nothing."""

    peer: Peer


@final
@dataclass(slots=True)
class ResumeReading:
    """Resume reading from the peer's connection after `StopReading`."""

    peer: Peer


@final
@dataclass(slots=True)
class Store:
    """Write records durably, in the order of these effects; `Stored` or `StoreFailed` follows. Do
    not act on the records before `Stored`."""

    ticket: Any
    records: Sequence[bytes]


@final
@dataclass(slots=True)
class Load:
    """Read the record at a position from `Stored`; `Loaded` or `LoadFailed` follows."""

    ticket: Any
    position: Any


@final
@dataclass(slots=True)
class ReadInTurn:
    """The messages of the peer start work, which messages of other peers finish: under overload,
    they wait, and peers take turns. While a peer waits, it is reported alive by empty batches, one
    each `report_s`. A second one changes `report_s`. `unfinished` returns how much of the started
    work is not finished yet."""

    peer: Peer
    report_s: float
    unfinished: Callable[[], int]


@final
@dataclass(slots=True)
class ReadFreely:
    """End `ReadInTurn`: the messages of the peer start no work any more. Those that wait are
    handled at once."""

    peer: Peer


@final
@dataclass(slots=True)
class Refused:
    """So many messages in the batch of a peer that is read in turn have started no work."""

    peer: Peer
    count: int


@final
@dataclass(slots=True)
class CancelHandler:
    """Cancel the handler of the request delivered under `token`: no caller waits for it."""

    token: Any
    reason: str


@final
@dataclass(slots=True)
class Note:
    """An event for the journal, the log or a checker. `kind` is a fixed word, `facts` its details;
    engines make notes only if configured to."""

    kind: str
    facts: Mapping[str, Any]


@final
@dataclass(slots=True)
class Warn:
    """A warning to the operator, rate-limited per `kind`."""

    kind: str
    text: str


@final
@dataclass(slots=True)
class Stopped:
    """The engine has drained and returns no further effects."""


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
    | ReadInTurn
    | ReadFreely
    | Refused
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
        """Handle the inputs of a turn at the instant `now` (monotonic seconds); return effects in
        order.

        Per peer and per token, the effects equal those of the inputs handled one by one. Messages
        to one peer may be combined into one `SendAll`, and deliveries into one `DeliverAll` after
        other effects: with 64 calls in flight this saves a third of a call's cost.

        Raises `LocalViolation` for an invalid input (a programming error) after handling all
        others; the next call, even without inputs, returns their effects. Bytes from a peer never
        make it raise (I13).
        """
        ...

    def deadline(self) -> float | None:
        """Return the instant of the next `Wake`, or None."""
        ...

    def snapshot(self) -> Any:
        """Return a frozen view of the engine's tables for dashboards, `mmi.stats` and checkers."""
        ...
