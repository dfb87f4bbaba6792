"""`titanic.replicate`: the protocol by which a Titanic sends its records to a replica.

    request   header, record, record, ...
    answer    200, position                     the replica's position
              400 text                          the replica refuses this sender
              400 text, "superseded", epoch     a replica was promoted; the sender must stop
              500 text                          not stored; retry

The header has 44 bytes: version, flags, two zero bytes, the 16 bytes of the sender's log id, the
number of the first record that the batch may hold, the number that follows the batch, and the
sender's epoch. A position has 24: the log id, and the number of the first record that the replica
lacks; an epoch has 8. All integers are little-endian. Records are copied from the sender's log byte
for byte (docs/protocols/titanic-log.md).

Epochs count promotions. A replica adopts the epoch of its sender, and increments it when it is
promoted. A Titanic refuses batches of a lower epoch than its own and answers with its epoch; the
sender is then superseded and stops serving.

A replica follows one log. While it holds requests, it refuses any other log of the same epoch:
otherwise a Titanic that has lost its folder, and starts with an empty one, would erase its only
copy. It also refuses a log that has lost records which the replica has.

A replica stores a batch that begins at its position. It ignores any other batch, and its answer
tells the sender where to continue. A batch with BEGIN starts a full copy: requests that are not
sent again up to a batch with HEAD, the first that reaches the end of the log, are closed.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from typing import Final, NamedTuple

from requite.errors import RemoteViolation

VERSION: Final = 1
BEGIN: Final = 1
HEAD: Final = 2

SUPERSEDED: Final = b"superseded"
"""The second frame of a 400 from a Titanic with a higher epoch, which is the third frame."""

_HEADER: Final = struct.Struct("<BBH16sQQQ")
_POSITION: Final = struct.Struct("<16sQ")
_SIZE: Final = struct.Struct("<I")
_EPOCH: Final = struct.Struct("<Q")


class Batch(NamedTuple):
    """Records of one log, from number `since` on; `following` is the number of the next one."""

    log_id: bytes
    since: int
    following: int
    records: Sequence[bytes] = ()
    is_begin: bool = False
    is_head: bool = False
    epoch: int = 0

    @property
    def is_question(self) -> bool:
        """Whether the batch only asks for the replica's position, and reports the sender's."""
        return not (self.is_begin or self.records) and self.following == self.since


def encode_batch(batch: Batch) -> list[bytes]:
    """Return the frames of a batch."""
    flags = (BEGIN if batch.is_begin else 0) | (HEAD if batch.is_head else 0)
    place = (batch.log_id, batch.since, batch.following, batch.epoch)
    header = _HEADER.pack(VERSION, flags, 0, *place)
    return [header, *batch.records]


def decode_batch(frames: Sequence[bytes]) -> Batch:
    """Decode the frames of a batch, or raise `RemoteViolation`."""
    if not frames or len(frames[0]) != _HEADER.size:
        raise RemoteViolation(f"the batch is shorter than its header of {_HEADER.size} bytes")
    version, flags, _, log_id, since, following, epoch = _HEADER.unpack(frames[0])
    if version != VERSION:
        raise RemoteViolation(f"version {version} of titanic.replicate is not supported")
    if following < since:
        raise RemoteViolation("the end of the batch is before its beginning")
    is_begin, is_head = bool(flags & BEGIN), bool(flags & HEAD)
    return Batch(log_id, since, following, frames[1:], is_begin, is_head, epoch)


def of_epoch(frames: Sequence[bytes], epoch: int) -> list[bytes]:
    """Insert the sender's epoch into the frames of a batch that a store has read."""
    at = _HEADER.size - _EPOCH.size
    return [frames[0][:at] + _EPOCH.pack(epoch), *frames[1:]]


def encode_position(log_id: bytes, number: int) -> bytes:
    """Encode a replica's position."""
    return _POSITION.pack(log_id.ljust(16, b"\0"), number)


def decode_position(frames: Sequence[bytes]) -> tuple[bytes, int]:
    """Decode the position from an answer with status 200, or raise `RemoteViolation`."""
    if len(frames) < 2 or len(frames[1]) != _POSITION.size:
        raise RemoteViolation("a replica's answer has no valid position as its second frame")
    log_id, number = _POSITION.unpack(frames[1])
    return log_id, number


def encode_superseded(epoch: int) -> tuple[bytes, bytes]:
    """Return the frames that follow the status in a refusal because of a higher epoch."""
    return SUPERSEDED, _EPOCH.pack(epoch)


def decode_superseded(frames: Sequence[bytes]) -> int | None:
    """Return the higher epoch from a refusal; None for any other refusal."""
    if len(frames) < 3 or frames[1] != SUPERSEDED or len(frames[2]) != _EPOCH.size:
        return None
    epoch: int = _EPOCH.unpack(frames[2])[0]
    return epoch


def pack(batch: Batch) -> bytes:
    """Join the frames of a batch into one payload, with the size before each."""
    pieces: list[bytes] = []
    for frame in encode_batch(batch):
        pieces += (_SIZE.pack(len(frame)), frame)
    return b"".join(pieces)


def unpack(payload: bytes) -> list[bytes]:
    """Split a payload of `pack` into its frames."""
    frames, at = [], 0
    while at < len(payload):
        (size,) = _SIZE.unpack_from(payload, at)
        at += _SIZE.size
        frames.append(payload[at : at + size])
        at += size
    return frames
