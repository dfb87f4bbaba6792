"""The Pirates on the wire: what a queue and its workers say, Simple and Paranoid.

Clients are REQ sockets, which put an empty delimiter in front of a body. A queue puts the client's
address in front of that, and a worker gives everything up to the delimiter back with its reply:

    client to queue             "" body...
    queue to worker     address "" body...        (Simple: behind a delimiter of its own, for REQ)
    worker to queue     address "" reply...       (likewise)
    queue to client             "" reply...

What a worker says for itself has one frame: that it is ready and, in Paranoid Pirate, that it
lives; the queue says the latter, too. 6/PPP has one byte for each of them, the Guide's text has
words. A queue understands both, and answers a worker in its own.

Frames are those of a DEALER or ROUTER. A worker of Simple Pirate has a REQ socket, whose framing
takes the outer delimiter off and puts it on (`framing/zmtp_socket.py`).

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
    """What a queue and its workers speak."""

    SIMPLE = "simple"
    PARANOID = "paranoid"

    @property
    def beats(self) -> bool:
        """Whether the two ends have heartbeats."""
        return self is Pattern.PARANOID


class Words(NamedTuple):
    """How a worker and its queue say that they are ready, and that they live."""

    ready: bytes
    heartbeat: bytes


PPP: Final = Words(b"\x01", b"\x02")
"""6/PPP: single bytes."""

GUIDE: Final = Words(b"READY", b"HEARTBEAT")
"""The Guide's text, whose Simple Pirate has the first of them."""

_ADDRESS_MASK: Final = 0xFFFF_FFFF


class Ready(NamedTuple):
    """A worker begins a conversation; `words` are those it uses."""

    words: Words


class Heartbeat(NamedTuple):
    """Somebody lives."""


class Envelope(NamedTuple):
    """A request or a reply. `envelope` are the frames up to the delimiter, with it."""

    envelope: Message
    body: Message


FromWorker: TypeAlias = Ready | Heartbeat | Envelope
ToWorker: TypeAlias = Heartbeat | Envelope

_BEAT: Final = Heartbeat()
_READY_BY_WORD: Final = {words.ready: Ready(words) for words in (PPP, GUIDE)}
_BEATS: Final = frozenset({PPP.heartbeat, GUIDE.heartbeat})


def words_of(pattern: Pattern) -> Words:
    """Return the words that a worker of ours uses."""
    return PPP if pattern is Pattern.PARANOID else GUIDE


def new_address(number: int) -> bytes:
    """Return the address of a client, for number 0 to 2**32 - 1: a zero byte and the number, as
    ROUTER sockets of libzmq name peers."""
    return b"\0" + (number & _ADDRESS_MASK).to_bytes(4, "big")


def split(frames: Sequence[bytes]) -> Envelope:
    """Part the envelope from the body: behind the first empty frame, where the body begins.

    Raises `RemoteViolation` without a delimiter, and without a body.
    """
    border = frames.index(b"") + 1 if b"" in frames else 0
    if not 0 < border < len(frames):
        raise RemoteViolation("a message without an empty delimiter and data frames behind it")
    return Envelope(list(frames[:border]), list(frames[border:]))


def decode_from_worker(pattern: Pattern, frames: Message) -> FromWorker:
    """Read what a worker said to a queue. Raises `RemoteViolation` for anything else."""
    if pattern is Pattern.SIMPLE:
        if len(frames) < 2 or frames[0]:
            raise RemoteViolation("a message of a REQ socket begins with an empty delimiter")
        frames = frames[1:]
    if len(frames) == 1:
        return _decode_control(pattern, frames[0])
    reply = split(frames)
    if len(reply.envelope) < 2:
        raise RemoteViolation("a reply without the address of a client")
    return reply


def _decode_control(pattern: Pattern, word: bytes) -> FromWorker:
    ready = _READY_BY_WORD.get(word)
    if ready is not None:
        return ready
    if pattern.beats and word in _BEATS:
        return _BEAT
    raise RemoteViolation(f"a worker says {word[:32]!r}, which means nothing")


def decode_to_worker(pattern: Pattern, frames: Message) -> ToWorker:
    """Read what a queue said to a worker. Raises `RemoteViolation` for a request without a body.

    6/PPP has an "optional address stack": whoever asks a worker directly may leave it out, and then
    everything is body. The reply has what the request had.
    """
    if len(frames) == 1 and pattern.beats and frames[0] in _BEATS:
        return _BEAT
    return split(frames) if b"" in frames else Envelope([], frames)


def request(pattern: Pattern, address: bytes, frames: Sequence[bytes]) -> Message:
    """Return a client's message, delimiter and all, as a queue hands it to a worker."""
    if pattern is Pattern.SIMPLE:
        return [b"", address, *frames]
    return [address, *frames]
