"""What every framing promises: bytes of one connection in, messages out, and back.

A framing is the sans-I/O half of a connection: it owns the greeting, the handshake, the limits and
the borders of messages, and knows neither sockets nor clocks. Its shell moves the bytes:

    transport.write(framing.opening())
    on each chunk read:   deliver(framing.receive(chunk)); transport.write(framing.output())
    on each turn to send: pieces = []; framing.encode(message, pieces); ...; write(b"".join(pieces))
    at the end of stream: framing.at_end()
    before we hang up:    transport.write(framing.closing())

When `framing.farewell` says something after `receive`, the peer has ended the connection in the
framing's own words: deliver what `receive` returned, then hang up. A `RemoteViolation` out of any
of these means: write what `output()` still holds, then close. Times (how long a handshake may take,
how long a peer may be silent) are the shell's business.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar, Final, Protocol, Self, TypeAlias

from requite.errors import RemoteViolation
from requite.principal import Credential
from requite.value import Value

Message: TypeAlias = list[bytes]
"""The frames of one message, in order; a protocol without frames uses exactly one."""

Piece: TypeAlias = bytes | memoryview
"""A part of a message to send."""

Chunk: TypeAlias = Any
"""What a stream carries at a time: bytes, or inside a process a list of messages (`handover`)."""


class CredentialsRefused(RemoteViolation):
    """The user name, password or key of the peer is wrong. `status` is what the peer is told;
    `shown` is the credential, without its secret, if the framing knows it."""

    # Of ZAP (RFC 27), for failed authentication; libzmq servers send it as the reason.
    status: ClassVar[str] = "400"

    def __init__(self, reason: str, shown: Credential | None = None) -> None:
        super().__init__(reason)
        self.shown = shown


Check: TypeAlias = Callable[[str, str], Credential | None]
"""Returns what a user name and a password prove; None: one of them is wrong."""


@dataclass(slots=True, eq=False)
class Login:
    """A user name and a password, for whose check a handshake waits.

    The owner of the connection calls `decide` with the result of `check(user, password)`, which may
    take long, and then `Framing.receive`, if need be with no bytes: the handshake goes on.
    """

    user: str
    password: str = field(repr=False)
    check: Check = field(repr=False)
    proof: Credential | None = None
    is_decided: bool = False

    def decide(self, proof: Credential | None) -> None:
        """Set what the password has proven; None: it is wrong."""
        self.proof, self.is_decided = proof, True

    def check_now(self) -> None:
        """Check the password and decide: for checks that take microseconds."""
        self.decide(self.check(self.user, self.password))


NO_FEATURES: Final[frozenset[str]] = frozenset()
"""The features of a peer that has announced none; one set for all connections."""

BODY_FRAMES_MAX: Final = 1024
"""Maximum number of frames of a body, in all protocols; not configurable."""

# Headers around a body: in MDP at most five frames and 531 bytes (a REQUEST of 0.3 with the longest
# name and key).
_HEADER_FRAMES: Final = 8
_HEADER_SIZE: Final = 1024


@dataclass(frozen=True, slots=True)
class Limits(Value):
    """Limits of incoming messages. A peer that announces or sends more is dropped.

    `message_size_bytes_max` bounds the total size of a message's frames, `frames_max` their number.
    An announced size over the limit is refused before any byte is buffered. `handshake_size_max`
    bounds, in bytes, each command, during the handshake and later among messages.
    """

    message_size_bytes_max: int = 64 << 20
    frames_max: int = BODY_FRAMES_MAX
    # A READY of libzmq has at most 320 bytes, a HELLO of PLAIN 518; the rest is for metadata that
    # applications add.
    handshake_size_max: int = 4096

    @classmethod
    def for_bodies(cls, size_max: int) -> Self:
        """Make limits that admit a body of `size_max` bytes with any protocol's headers."""
        return cls(size_max + _HEADER_SIZE, BODY_FRAMES_MAX + _HEADER_FRAMES)


class Framing(Protocol):
    """Converts between one connection's byte stream and whole messages."""

    ready: bool
    """True once the handshake is complete: from then on `encode` may be called."""

    refusal: str
    """Why the handshake failed, if a retry with the same credentials would fail, too; else ""."""

    peer_identity: bytes
    """The identity that the peer announced; b"" before `ready`, and if it announced none."""

    peer_credential: Credential | None
    """What the handshake has proven about the peer; None before `ready`, and if nothing."""

    peer_features: frozenset[str]
    """Optional features of the protocol that the peer has announced in the handshake."""

    def opening(self) -> bytes:
        """Return the bytes to send once connected, before anything is read."""

    def receive(self, chunk: bytes) -> list[Message]:
        """Parse the next bytes of the stream; return the messages that they complete.

        The framing consumes handshake and heartbeats. Raises `RemoteViolation` if the peer broke
        the protocol or a limit; earlier messages of the same chunk are dropped with the connection,
        and every later call raises the same error.
        """

    @property
    def login(self) -> Login | None:
        """The password for which the handshake of a listener waits; None if for none. Meanwhile
        `receive` only keeps bytes."""

    def refuse(self, status: str, /) -> None:
        """Tell a peer whose handshake is complete why it is not admitted, if the protocol can; the
        bytes replace those of `output`. The connection is closed then."""

    def output(self) -> bytes:
        """Return and clear the framing's own output: handshake, replies to heartbeats.

        Call it (and send the result) also after `receive` raised: it may tell the peer the reason.
        """

    @property
    def farewell(self) -> str:
        """The peer's orderly close, as text; "" before it.

        Only WebSocket has one, the Close frame. In other framings the stream just ends.
        """

    def closing(self) -> bytes:
        """Return the bytes to send before closing, if the framing has an orderly close."""

    def encode(self, message: Sequence[bytes], out: list[bytes]) -> int:
        """Append the wire form of `message` to `out` in pieces; return the number of bytes added.

        Bodies are appended without copying: the caller joins the pieces once per flush. After a
        farewell or `closing` nothing is added. Raises `LocalViolation`, with `out` unchanged,
        before `ready` or for a message that the protocol cannot carry.
        """

    @property
    def mid_message(self) -> bool:
        """Whether a message has arrived in part, which shows that its sender is alive."""

    @property
    def partial_size(self) -> int:
        """The memory of the incomplete message in bytes; 0 if there is none, and before `ready`.
        Bytes count when they have arrived, with their headers, and not when they are announced."""

    def at_end(self) -> None:
        """Handle the end of the stream; raise `RemoteViolation` for a cut message or handshake."""
