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

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, Protocol, Self, TypeAlias

Message: TypeAlias = list[bytes]
"""The frames of one message, in order; a protocol without frames uses exactly one."""


BODY_FRAMES_MAX: Final = 1024
"""Frames of one body, for everybody: there is no setting for it."""

# What a protocol puts around a body: in MDP at most five frames, and 531 bytes (a REQUEST of 0.3
# with the longest name and key).
_HEADER_FRAMES: Final = 8
_HEADER_SIZE: Final = 1024


@dataclass(frozen=True, slots=True)
class Limits:
    """What one peer may make us hold. A peer that announces or sends more is dropped.

    `message_size_bytes_max` bounds the sum of the frames of one message, `frames_max` their number.
    A size that is announced up front is refused before a byte of it is kept. `handshake_size_max`
    bounds, in bytes, each single command of a handshake, and those that come later among messages.
    """

    message_size_bytes_max: int = 64 << 20
    frames_max: int = BODY_FRAMES_MAX
    # A READY of libzmq has at most 320 bytes, a HELLO of PLAIN 518; the rest is for metadata that
    # applications add.
    handshake_size_max: int = 4096

    @classmethod
    def for_bodies(cls, size_max: int) -> Self:
        """Make limits under which a body of `size_max` bytes passes, whatever is put around it."""
        return cls(size_max + _HEADER_SIZE, BODY_FRAMES_MAX + _HEADER_FRAMES)


class Framing(Protocol):
    """One connection's translator between a byte stream and whole messages."""

    ready: bool
    """True once the handshake is complete: from then on `encode` may be called."""

    refusal: str
    """Why the handshake failed, where another one with the same credentials would fail as well; ""
    as long as nothing is known against it."""

    peer_identity: bytes
    """What the peer announced as its identity; b"" before `ready`, and where it announced none."""

    def opening(self) -> bytes:
        """Return the bytes to send as soon as the connection stands, before anything is read."""

    def receive(self, chunk: bytes) -> list[Message]:
        """Take the next bytes of the stream; return the messages that they complete.

        Handshake and heartbeats are consumed inside. Raises `RemoteViolation` when the peer broke
        the protocol or a limit; messages that stood before the offence in the same chunk are lost
        with the connection, and every later call raises the same error again.
        """

    def output(self) -> bytes:
        """Return, once, what the framing itself has to say: handshake, answers to heartbeats.

        Also to be called (and sent) after `receive` raised: it may hold the reason for the peer.
        """

    @property
    def farewell(self) -> str:
        """What the peer said, for people, to end the connection in order; "" while it has not.

        Only a framing with words for it has one: the Close frame of WebSocket. Elsewhere the end of
        the stream is all that tells.
        """

    def closing(self) -> bytes:
        """Return what to say before we hang up, where the framing has words for that, too."""

    def encode(self, message: Sequence[bytes], out: list[bytes]) -> int:
        """Append the wire form of `message` to `out` in pieces; return the bytes that were added.

        Bodies are appended as they are, neither copied nor joined: the caller joins once per flush.
        After a farewell or `closing` there is nobody to encode for, and nothing is added. Raises
        `LocalViolation`, with `out` unchanged, before `ready` or for a message that the protocol
        cannot carry.
        """

    @property
    def mid_message(self) -> bool:
        """Whether a message has begun to come in and is not complete: its sender is alive."""

    def at_end(self) -> None:
        """Note the end of the stream; raise `RemoteViolation` if it cut a message or handshake."""
