"""The traffic of a connection with CURVE: each frame is in the box of a MESSAGE command (RFC 26).

        frame header | 7 "MESSAGE" | nonce u64 | Box[flags u8, body]      flags: MORE 1, COMMAND 2

Choices where RFC 26 and libzmq differ, or leave one:

- MESSAGE is a command, but libzmq sends it in a frame without the flag COMMAND, and 4.3 takes the
  content of one with it for a command. So frames are sent without it, and accepted with and
  without.
- RFC 26 defines the flag MORE only. libzmq marks commands in the traffic (PING) with flag 2.
- Nonces must increase by one. RFC 26 forbids only to repeat one; but if a gap were accepted,
  somebody on the network could remove frames: the header of one message and the body of the next
  would make a request that nobody sent.
"""

from __future__ import annotations

from collections.abc import Sequence
from struct import Struct
from typing import Final, NamedTuple

from nacl._sodium import ffi, lib
from nacl.bindings import crypto_box_afternm, crypto_box_open_afternm
from nacl.exceptions import CryptoError

from requite.errors import LocalViolation, RemoteViolation
from requite.framing.base import Limits, Message
from requite.framing.parts import Parts
from requite.framing.zmtp_command import COMMAND, LONG, Command, check_number, split_command
from requite.framing.zmtp_frames import FRAME_SIZE, SHORT_SIZES, long_last

CLIENT: Final = b"CurveZMQMESSAGEC"
SERVER: Final = b"CurveZMQMESSAGES"
"""The first bytes of the nonces of each side; the counter follows."""

_NAME: Final = b"\x07MESSAGE"
_BOX_AT: Final = 16  # after name and counter
_OVERHEAD: Final = 33  # name, counter, the box's 16 bytes, flags

_LAST: Final = b"\x00"
_MORE: Final = b"\x01"
_IS_COMMAND: Final = b"\x02"

# The first bytes of short frames by their size, as in `zmtp_frames`.
_HEADS: Final = tuple(bytes((0, size)) + _NAME for size in range(SHORT_SIZES))

# For small frames `nacl.bindings` takes longer than libsodium: with its two buffers and three
# copies a frame of 40 bytes takes 1.6 us, with libsodium's function and one buffer 0.7. A buffer
# belongs to one connection, since libsodium runs without the GIL.
_MAC_SIZE: Final = 16
_SMALL: Final = 2048  # plain text with flags, in bytes

_u64: Final = Struct(">Q")
_seal: Final = lib.crypto_box_easy_afternm
_unseal: Final = lib.crypto_box_open_easy_afternm
_ALTERED: Final = "cannot decrypt a MESSAGE: it was altered"


class Way(NamedTuple):
    """One direction: the prefix of its nonces, and the last counter in use."""

    prefix: bytes
    last: int


class CurveTraffic:
    """Encrypts and decrypts the traffic after the handshake; part of `Traffic`.

    `key` is the session's, `ours` and `theirs` are the two directions. Written for speed: it
    encrypts a frame of 40 bytes in 1.2 us, and decrypts it in 1.7 (CPython 3.11).

    After `read` has raised, the object must not be used again.
    """

    __slots__ = (
        "_buffer",
        "_count",
        "_frames",
        "_key",
        "_limits",
        "_missing",
        "_parts",
        "_prefix",
        "_their_count",
        "_their_prefix",
        "_unsuspicious",
        "_view",
        "_wire_size",
        "commands",
        "partial_size",
    )

    def __init__(self, key: bytes, ours: Way, theirs: Way, limits: Limits) -> None:
        self.commands: list[Command] | None = None
        self._key = key
        self._prefix, self._count = ours
        self._their_prefix, self._their_count = theirs
        self._limits = limits
        # As in `FrameReader`: a message of at most this size on the wire is within both limits.
        self._unsuspicious = min(limits.message_size_bytes_max, _OVERHEAD * limits.frames_max)
        self._buffer = ffi.new("unsigned char[]", _SMALL + _MAC_SIZE)
        self._view = ffi.buffer(self._buffer)
        self._frames: Message | None = None  # of the partial message
        self._wire_size = 0  # of the bodies of those frames in the stream
        self._parts = Parts()  # the beginning of an incomplete frame,
        self._missing = 0  # and how many bytes must arrive before it can be parsed further
        self.partial_size = 0

    @property
    def between_messages(self) -> bool:
        """Whether the stream may end here: no message is partial."""
        return not self.partial_size

    # --- sending ------------------------------------------------------------------------------
    def encode(self, message: Sequence[bytes], out: list[bytes]) -> int:
        """Append the boxes of a message to `out`; return the bytes added."""
        left = len(message)
        if not left:
            raise LocalViolation("a message must have at least one frame")
        count, prefix, key = self._count, self._prefix, self._key
        # In advance, so that no nonce is used twice if an exception interrupts the loop.
        self._count = count + left
        pack, seal, buffer, view = _u64.pack, _seal, self._buffer, self._view
        added = 0
        for frame in message:
            left -= 1
            count += 1
            nonce = pack(count)
            plain = (_MORE if left else _LAST) + frame
            size = len(plain)
            if size <= _SMALL:
                seal(buffer, plain, size, prefix + nonce, key)
                box = view[: size + _MAC_SIZE]
            else:
                box = crypto_box_afternm(plain, prefix + nonce, key)
            size += _MAC_SIZE + _BOX_AT
            if size < SHORT_SIZES:
                out.append(_HEADS[size] + nonce)
                added += size + 2
            else:
                out.append(long_last(size) + _NAME + nonce)
                added += size + 9
            out.append(box)
        return added

    def encode_command(self, name: bytes, data: bytes) -> bytes:
        """Return the box of a command."""
        self._count += 1
        nonce = _u64.pack(self._count)
        plain = _IS_COMMAND + bytes((len(name),)) + name + data
        box = crypto_box_afternm(plain, self._prefix + nonce, self._key)
        return _HEADS[len(box) + _BOX_AT] + nonce + box

    # --- receiving ----------------------------------------------------------------------------
    def read(self, chunk: bytes) -> list[Message]:
        """Return the messages that `chunk` completes, or raise `RemoteViolation`."""
        messages: list[Message] = []
        if self._parts.size:
            self._parts.add(chunk)
            self._missing -= len(chunk)
            if self._missing > 0:
                self.partial_size += len(chunk)
                return messages
            chunk = self._parts.take()
        frames, held = self._frames or [], self._wire_size
        unsuspicious = self._unsuspicious
        prefix, key, count = self._their_prefix, self._key, self._their_count
        pack, unseal, buffer, view = _u64.pack, _unseal, self._buffer, self._view
        end, at, missing = len(chunk), 0, 0
        while at < end:
            flags = chunk[at]
            if flags & ~(LONG | COMMAND):
                raise RemoteViolation(
                    f"received a frame with the flags {flags:#04x} that is not encrypted"
                )
            body = at + (9 if flags & LONG else 2)
            if body > end:
                missing = body - end
                break
            size = _u64.unpack_from(chunk, at + 1)[0] if flags & LONG else chunk[at + 1]
            after = body + size
            held += size
            if held > unsuspicious:
                self._check_announced(frames, held)
            if after > end:
                held -= size
                missing = after - end
                break
            count += 1
            nonce = pack(count)
            if size < _OVERHEAD or not chunk.startswith(_NAME + nonce, body):
                raise RemoteViolation(_not_the_next(chunk[body:after], count))
            box = chunk[body + _BOX_AT : after]
            if size <= _SMALL:
                if unseal(buffer, box, size - _BOX_AT, prefix + nonce, key):
                    raise RemoteViolation(_ALTERED)
                plain = view[: size - _BOX_AT - _MAC_SIZE]
            else:
                plain = _open_large(box, prefix + nonce, key)
            at = after
            kind = plain[0]
            if kind < 2:
                frames.append(plain[1:])
                if held > unsuspicious:
                    self._check_limits(frames, held)
                if not kind:
                    messages.append(frames)
                    frames = []
                    held = 0
            else:
                held -= size
                self._take_command(plain)
        self._frames, self._wire_size, self._their_count = frames or None, held, count
        if missing:
            self._parts.add(chunk[at:])
            self._missing = missing
        content = held - _OVERHEAD * len(frames)
        self.partial_size = content + FRAME_SIZE * len(frames) + end - at
        return messages

    def _take_command(self, plain: bytes) -> None:
        if plain[:1] != _IS_COMMAND:
            raise RemoteViolation(f"received a MESSAGE with the invalid flags {plain[0]:#04x}")
        if len(plain) > self._limits.handshake_size_max:
            raise RemoteViolation(
                f"received a command of {len(plain) - 1} bytes; the maximum is"
                f" {self._limits.handshake_size_max}"
            )
        if self.commands is None:
            self.commands = []
        self.commands.append(split_command(plain[1:]))
        check_number(self.commands)

    def _check_announced(self, frames: Message, held: int) -> None:
        """Raise `RemoteViolation` if an announced frame is beyond the limit, even as a command."""
        limits = self._limits
        size = held - _OVERHEAD * (len(frames) + 1)
        if size > limits.message_size_bytes_max + limits.handshake_size_max:
            raise RemoteViolation(_too_large(size, limits))

    def _check_limits(self, frames: Message, held: int) -> None:
        """Raise `RemoteViolation` for a message beyond a limit."""
        limits = self._limits
        if len(frames) > limits.frames_max:
            raise RemoteViolation(
                f"received a message of more than {limits.frames_max} frames, the maximum"
            )
        size = held - _OVERHEAD * len(frames)
        if size > limits.message_size_bytes_max:
            raise RemoteViolation(_too_large(size, limits))


def _open_large(box: bytes, nonce: bytes, key: bytes) -> bytes:
    try:
        return crypto_box_open_afternm(box, nonce, key)
    except CryptoError:
        raise RemoteViolation(_ALTERED) from None


def _too_large(size: int, limits: Limits) -> str:
    return (
        f"received a message of at least {size} bytes; the maximum is"
        f" {limits.message_size_bytes_max}"
    )


def _not_the_next(body: bytes, expected: int) -> str:
    """Return what is wrong with a frame that is not the MESSAGE with the next nonce."""
    if len(body) < _OVERHEAD or not body.startswith(_NAME):
        return "received a frame that is not a MESSAGE of CURVE, on an encrypted connection"
    given = _u64.unpack_from(body, len(_NAME))[0]
    what = "was sent before (a replay)" if given < expected else "follows a gap"
    return f"received a MESSAGE whose nonce {given} {what}; {expected} is next"
