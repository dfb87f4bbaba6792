"""Frames of ZMTP: parses a stream of frames into messages, and has the headers for encoding.

        flags u8 | size u8, or u64 with LONG | body             flags: MORE 1, LONG 2, COMMAND 4

A message consists of frames with MORE and a last one without (RFC 37, Framing).
"""

from __future__ import annotations

from struct import Struct
from typing import Final

from requite.errors import RemoteViolation
from requite.framing.base import Limits, Message
from requite.framing.zmtp_command import LONG, MORE, Command, check_number, find_command

SHORT_SIZES: Final = 256

# Smaller parts of a long body are joined on arrival. An object costs some 40 bytes, so the overhead
# of a body stays near one per cent.
_PART_SIZE_MIN: Final = 4096
# The memory of a frame beside its content (CPython 3.11: 44 bytes); a short frame is mostly that.
FRAME_SIZE: Final = 48

# Headers by body size: a lookup costs a third of an encoding.
SHORT_MORE: Final = tuple(bytes((MORE, size)) for size in range(SHORT_SIZES))
SHORT_LAST: Final = tuple(bytes((0, size)) for size in range(SHORT_SIZES))

_size_at: Final = Struct(">Q").unpack_from
_long_header: Final = Struct(">BQ").pack


def long_more(size: int) -> bytes:
    """Return the header of a long frame with MORE."""
    return _long_header(LONG | MORE, size)


def long_last(size: int) -> bytes:
    """Return the header of a long last frame."""
    return _long_header(LONG, size)


class FrameReader:
    """Parses chunks of a stream into messages, and appends commands to `commands`.

    Between two chunks it holds the complete frames of a partial message, and either the beginning
    of a short frame or command, or the received part of one long body. Only the beginning is parsed
    again with the next chunk, so the time for a long message is linear in its size.

    After `read` has raised, the reader must not be used again.
    """

    __slots__ = (
        "_body",
        "_ends_message",
        "_frames",
        "_limits",
        "_missing",
        "_tail",
        "_unsuspicious",
        "_wire_size",
        "commands",
        "partial_size",
    )

    def __init__(self, limits: Limits) -> None:
        # None in place of an empty list, which takes 56 bytes: most connections are idle.
        self.commands: list[Command] | None = None
        self._limits = limits
        # A message of at most this many bytes on the wire is within both limits, since a frame has
        # at least two bytes: one comparison admits nearly every message; the others are counted.
        self._unsuspicious = min(limits.message_size_bytes_max, 2 * limits.frames_max)
        self._frames: Message | None = None  # complete frames of the partial message
        # The bytes of that message in the stream, with announced body and commands.
        self._wire_size = 0
        self._tail = b""  # the beginning of an incomplete frame or command
        self._body: list[bytes] | None = None  # the received part of a long body,
        self._missing = 0  # the number of its missing bytes,
        self._ends_message = False  # and whether it ends its message
        self.partial_size = 0  # the memory of what has arrived of the incomplete message

    @property
    def between_messages(self) -> bool:
        """Whether the stream may end here: no message is partial."""
        return not self.partial_size

    def read(self, chunk: bytes) -> list[Message]:
        """Return the messages that `chunk` completes, or raise `RemoteViolation`."""
        messages: list[Message] = []
        if self._missing:
            if len(chunk) < self._missing:
                self._grow_body(chunk)
                self._missing -= len(chunk)
                self.partial_size += len(chunk)
                return messages
            chunk = self._finish_body(chunk, messages)
        elif self._tail:
            chunk = self._tail + chunk

        frames = self._frames or []
        end = len(chunk)
        header_end = end - 1  # a frame header has at least two bytes
        unsuspicious = self._unsuspicious
        start = -self._wire_size  # where the current message began, relative to `chunk`
        at = 0
        # One loop without a call per frame, because it is on the hot path of a broker: messages of
        # two frames (40 and 11 bytes), 64 per chunk, take 0.43 us each (CPython 3.11). A call per
        # frame, with limits checked in each, doubles that.
        while at < header_end:
            flags = chunk[at]
            if flags < 2:
                body = at + 2
                after = body + chunk[at + 1]
                if after > end:
                    break
            elif flags < 4:
                body = at + 9
                if body > end:
                    break
                after = body + _size_at(chunk, at + 1)[0]
                if after - start > unsuspicious:
                    self._check_limits(frames, after - start, after - body)
                if after > end:
                    self._begin_body(chunk[body:], after - end, ends_message=flags == LONG)
                    at = after
                    break
            else:
                found = find_command(chunk, at, self._limits.handshake_size_max)
                if found is None:
                    break
                # libzmq sends a heartbeat between two frames of a message if its output buffer
                # fills up there, so commands are accepted anywhere.
                if self.commands is None:
                    self.commands = []
                self.commands.append(found[0])
                check_number(self.commands)
                at = found[1]
                if not frames:
                    start = at
                continue
            frames.append(chunk[body:after])
            at = after
            if not flags & 1:
                if at - start > unsuspicious:
                    self._check_limits(frames, at - start)
                messages.append(frames)
                frames = []
                start = at
        self._frames = frames or None
        self._tail = chunk[at:]
        self._wire_size = at - start
        # All bytes after `start` have arrived, and are held in `frames`, `_tail` or `_body`.
        self.partial_size = end - start + FRAME_SIZE * len(frames)
        if at - start > unsuspicious:
            self._check_limits(frames, at - start)
        return messages

    def _check_limits(self, frames: Message, wire_size: int, announced: int | None = None) -> None:
        """Raise `RemoteViolation` for a message beyond a limit, with an announced frame included.

        It sums up the bodies only if the size on the wire is above the limit, so that the frames
        of a long message are not summed up for each of them.
        """
        limits = self._limits
        if len(frames) + (announced is not None) > limits.frames_max:
            raise RemoteViolation(
                f"received a message of more than {limits.frames_max} frames, the maximum"
            )
        if wire_size > limits.message_size_bytes_max:
            size = sum(map(len, frames)) + (announced or 0)
            if size > limits.message_size_bytes_max:
                allowed = limits.message_size_bytes_max
                raise RemoteViolation(
                    f"received a message of at least {size} bytes; the maximum is {allowed}"
                )

    def _begin_body(self, beginning: bytes, missing: int, *, ends_message: bool) -> None:
        self._body = [beginning]
        self._missing = missing
        self._ends_message = ends_message

    def _grow_body(self, chunk: bytes) -> None:
        """Store the next part of the long body. Only received bytes take memory.

        Chunks are stored and joined once, which for 64 MiB takes half the time of a growing
        bytearray. Small chunks are joined, so that a peer that sends single bytes does not cost an
        object for each.
        """
        body = self._body
        assert body is not None
        if len(body[-1]) < _PART_SIZE_MIN:
            body[-1] += chunk
        else:
            body.append(chunk)

    def _finish_body(self, chunk: bytes, messages: list[Message]) -> bytes:
        """Complete the long body, and its message if it is the last frame; return the rest."""
        missing, self._missing = self._missing, 0
        assert self._body is not None
        frames = self._frames or []
        frames.append(b"".join((*self._body, chunk[:missing])))
        self._body = None
        self._frames = frames
        if self._ends_message:
            messages.append(frames)
            self._frames = None
            self._wire_size = 0
        return chunk[missing:]
