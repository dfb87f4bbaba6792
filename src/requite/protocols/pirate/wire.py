"""The Pirates on the wire: messages between a queue and its workers, Simple and Paranoid.

Clients are REQ sockets, which prefix the body with an empty delimiter. A queue prefixes that with
the client's address, and a worker copies everything up to the delimiter into its reply:

    client to queue             "" body...
    queue to worker     address "" body...        (Simple: behind another delimiter, for REQ)
    worker to queue     address "" reply...       (Simple: behind another delimiter)
    queue to client             "" reply...

Control messages have one frame: READY from a worker and, in Paranoid Pirate, heartbeats in both
directions. 6/PPP encodes each as one byte, the Guide's text as a word. A queue understands both,
and answers a worker in its encoding.

Frames are those of a DEALER or ROUTER. A worker of Simple Pirate has a REQ socket, whose framing
removes and adds the outer delimiter (`framing/zmtp_socket.py`).

Sources: Guide, "Basic Reliable Queuing (Simple Pirate Pattern)" and "Robust Reliable Queuing
(Paranoid Pirate Pattern)"; 6/PPP.
"""

from __future__ import annotations

from collections.abc import Sequence
from enum import StrEnum
from typing import Final, NamedTuple, TypeAlias

from requite.engine import Message
from requite.errors import RemoteViolation


class Pattern(StrEnum):
    """The protocol between a queue and its workers."""

    SIMPLE = "simple"
    PARANOID = "paranoid"

    @property
    def beats(self) -> bool:
        """Whether the protocol has heartbeats."""
        return self is Pattern.PARANOID


class Words(NamedTuple):
    """The encoding of READY and of heartbeats."""

    ready: bytes
    heartbeat: bytes


PPP: Final = Words(b"\x01", b"\x02")
"""6/PPP: single bytes."""

GUIDE: Final = Words(b"READY", b"HEARTBEAT")
"""The Guide's text; its Simple Pirate has only READY."""

_ADDRESS_MASK: Final = 0xFFFF_FFFF


class Ready(NamedTuple):
    """A worker is ready; `words` is its encoding."""

    words: Words


class Heartbeat(NamedTuple):
    """The peer is alive."""


class Envelope(NamedTuple):
    """A request or a reply. `envelope` are the frames up to and including the delimiter."""

    envelope: Message
    body: Message


FromWorker: TypeAlias = Ready | Heartbeat | Envelope
ToWorker: TypeAlias = Heartbeat | Envelope

_BEAT: Final = Heartbeat()
_READY_BY_WORD: Final = {words.ready: Ready(words) for words in (PPP, GUIDE)}
_BEATS: Final = frozenset({PPP.heartbeat, GUIDE.heartbeat})


def words_of(pattern: Pattern) -> Words:
    """Return the encoding that requite's workers use."""
    return PPP if pattern is Pattern.PARANOID else GUIDE


def new_address(number: int) -> bytes:
    """Return the address of a client, for number 0 to 2**32 - 1: a zero byte and the number, as
    ROUTER sockets of libzmq name peers."""
    return b"\0" + (number & _ADDRESS_MASK).to_bytes(4, "big")


def split(frames: Sequence[bytes]) -> Envelope:
    """Split a message behind its first empty frame into envelope and body.

    Raises `RemoteViolation` if delimiter or body are missing.
    """
    border = frames.index(b"") + 1 if b"" in frames else 0
    if not 0 < border < len(frames):
        raise RemoteViolation(
            "received a message without an empty delimiter frame followed by data frames"
        )
    return Envelope(list(frames[:border]), list(frames[border:]))


def decode_from_worker(pattern: Pattern, frames: Message) -> FromWorker:
    """Decode a message of a worker to a queue. Raises `RemoteViolation`."""
    if pattern is Pattern.SIMPLE:
        if len(frames) < 2 or frames[0]:
            raise RemoteViolation(
                "received a message without the empty delimiter frame of a REQ socket"
            )
        frames = frames[1:]
    if len(frames) == 1:
        return _decode_control(pattern, frames[0])
    reply = split(frames)
    if len(reply.envelope) < 2:
        raise RemoteViolation("received a reply without a client address")
    return reply


def _decode_control(pattern: Pattern, word: bytes) -> FromWorker:
    ready = _READY_BY_WORD.get(word)
    if ready is not None:
        return ready
    if pattern.beats and word in _BEATS:
        return _BEAT
    raise RemoteViolation(f"received the unknown control message {word[:32]!r} from a worker")


def decode_to_worker(pattern: Pattern, frames: Message) -> ToWorker:
    """Decode a message of a queue to a worker. Raises `RemoteViolation` for a request without a
    body.

    In 6/PPP the address stack is optional: a request without it consists of the body only, and so
    does its reply.
    """
    if len(frames) == 1 and pattern.beats and frames[0] in _BEATS:
        return _BEAT
    return split(frames) if b"" in frames else Envelope([], frames)


def request(pattern: Pattern, address: bytes, frames: Sequence[bytes]) -> Message:
    """Encode a client's message, including its delimiter, for a worker."""
    if pattern is Pattern.SIMPLE:
        return [b"", address, *frames]
    return [address, *frames]
