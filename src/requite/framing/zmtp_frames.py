"""Frames of ZMTP: reading a stream of them as whole messages, and the headers for writing them.

        flags u8 | size u8, or u64 with LONG | body             flags: MORE 1, LONG 2, COMMAND 4

A message is frames with MORE up to one without (RFC 37, Framing).
"""

from __future__ import annotations

from struct import Struct
from typing import Final

from requite.errors import RemoteViolation
from requite.framing.base import Limits, Message
from requite.framing.zmtp_command import LONG, MORE, Command, find_command

SHORT_SIZES: Final = 256

# Smaller parts of a long body are put together as they come. An object costs some 40 bytes, so
# this keeps what a body costs beyond its size near one per cent.
_PART_SIZE_MIN: Final = 4096

# Headers by body size, made once: looking one up costs a third of making it.
SHORT_MORE: Final = tuple(bytes((MORE, size)) for size in range(SHORT_SIZES))
SHORT_LAST: Final = tuple(bytes((0, size)) for size in range(SHORT_SIZES))

_size_at: Final = Struct(">Q").unpack_from
_long_header: Final = Struct(">BQ").pack


def long_more(size: int) -> bytes:
    """Return the header of a long frame that others follow."""
    return _long_header(LONG | MORE, size)


def long_last(size: int) -> bytes:
    """Return the header of a long frame that ends its message."""
    return _long_header(LONG, size)


class FrameReader:
    """Turns chunks of a stream into messages; commands among them are put into `commands`.

    Between two chunks it holds the whole frames of an unfinished message, and either the beginning
    of a short frame or command, or what has come of one long body. Only the former is put in front
    of the next chunk and read again, so reading a long message takes time linear in its size.

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
    )

    def __init__(self, limits: Limits) -> None:
        self.commands: list[Command] = []
        self._limits = limits
        # A message of at most this many bytes on the wire is within both limits, for a frame takes
        # two bytes at least: one comparison clears nearly every message, the others are counted.
        self._unsuspicious = min(limits.message_size_bytes_max, 2 * limits.frames_max)
        self._frames: Message = []  # whole frames of the message that is not complete yet
        # What that message has taken of the stream, announced body and commands included.
        self._wire_size = 0
        self._tail = b""  # the beginning of a frame or command whose rest is to come
        self._body: list[bytes] = []  # what has come of a long body ...
        self._missing = 0  # ... and how much of it is to come
        self._ends_message = False  # ... and whether it is the last of its message

    @property
    def between_messages(self) -> bool:
        """True when the stream may end here without anything being lost."""
        return not (self._frames or self._tail or self._missing)

    def read(self, chunk: bytes) -> list[Message]:
        """Return the messages that `chunk` completes, or raise `RemoteViolation`."""
        messages: list[Message] = []
        if self._missing:
            if len(chunk) < self._missing:
                self._grow_body(chunk)
                self._missing -= len(chunk)
                return messages
            chunk = self._finish_body(chunk, messages)
        elif self._tail:
            chunk = self._tail + chunk

        frames = self._frames
        end = len(chunk)
        header_end = end - 1  # a frame header has two bytes or more
        unsuspicious = self._unsuspicious
        start = -self._wire_size  # where the current message began, in the coordinates of `chunk`
        at = 0
        # One loop and no call per frame, because a broker spends its time here: two-frame messages
        # of 40 and 11 bytes, 64 to a chunk, take 0.43 us each (CPython 3.11). A call per frame, and
        # limits counted at each, double that.
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
                # libzmq sends a heartbeat between two frames of a message when its output buffer
                # fills up there, so commands are taken anywhere.
                self.commands.append(found[0])
                at = found[1]
                continue
            frames.append(chunk[body:after])
            at = after
            if not flags & 1:
                if at - start > unsuspicious:
                    self._check_limits(frames, at - start)
                messages.append(frames)
                frames = []
                start = at
        self._frames = frames
        self._tail = chunk[at:]
        self._wire_size = at - start
        if at - start > unsuspicious:
            self._check_limits(frames, at - start)
        return messages

    def _check_limits(self, frames: Message, wire_size: int, announced: int | None = None) -> None:
        """Refuse a message that is, or with an announced frame becomes, larger than allowed.

        Bodies are only added up when the size on the wire does not clear them, so that a message
        of many frames is not added up for each of them.
        """
        limits = self._limits
        if len(frames) + (announced is not None) > limits.frames_max:
            raise RemoteViolation(f"a message of more than {limits.frames_max} frames")
        if wire_size > limits.message_size_bytes_max:
            size = sum(map(len, frames)) + (announced or 0)
            if size > limits.message_size_bytes_max:
                allowed = limits.message_size_bytes_max
                raise RemoteViolation(f"a message of {size} bytes or more; {allowed} are allowed")

    def _begin_body(self, beginning: bytes, missing: int, *, ends_message: bool) -> None:
        self._body = [beginning]
        self._missing = missing
        self._ends_message = ends_message

    def _grow_body(self, chunk: bytes) -> None:
        """Keep the next part of the long body: what has come, never room for what was announced.

        Chunks are kept as they are and joined once, in half the time that a growing bytearray
        takes for 64 MiB; but a peer that sends single bytes must not cost an object for each.
        """
        if len(self._body[-1]) < _PART_SIZE_MIN:
            self._body[-1] += chunk
        else:
            self._body.append(chunk)

    def _finish_body(self, chunk: bytes, messages: list[Message]) -> bytes:
        """Complete the long body, and its message if that was the last; return what follows."""
        missing, self._missing = self._missing, 0
        self._frames.append(b"".join((*self._body, chunk[:missing])))
        self._body = []
        if self._ends_message:
            messages.append(self._frames)
            self._frames = []
            self._wire_size = 0
        return chunk[missing:]
