"""`titanic.replicate`: how one Titanic tells another what it has stored.

    request   header, record, record, ...
    answer    200, position                     where the replica is now
              400 text                          it takes nothing from this sender
              400 text, "superseded", epoch     nor does anybody else: a replica was promoted
              500 text                          not stored; try again

The header has 44 bytes: version, flags, two zero bytes, the 16 bytes of the sender's log id, the
number of the first record that the batch may hold, the number that follows the batch, and the
sender's epoch. A position has 24: the log id, and the number of the record that is missed next; an
epoch has 8. All integers are little-endian. Records are those of the sender's log, as they are
(docs/protocols/titanic-log.md).

Epochs count promotions. A replica takes over the epoch of the one that it follows, and has the next
one when it is promoted. Whoever is told to replicate for a lower epoch than its own refuses, and
says which epoch it knows; the sender has been superseded, and takes nothing any more.

A replica follows one log. It takes nothing of another one of the same epoch as long as it holds
anything: a Titanic that has lost its folder, and begins with an empty one, must not have its only
copy emptied. Nor does it let a log go back behind what it has of it.

A batch is taken if it begins where the replica is. Any other changes nothing; the answer tells the
sender from where to go on. BEGIN says that the batch begins anew, with everything there is: what
does not come again until a batch with HEAD, the first that reaches the end of the log, is closed.
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
"""The second frame of a 400 from one who knows of a higher epoch, which the third frame tells."""

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
        """Whether it only asks where the replica is, and tells how far the sender has come."""
        return not (self.is_begin or self.records) and self.following == self.since


def encode_batch(batch: Batch) -> list[bytes]:
    """Return the frames of a batch."""
    flags = (BEGIN if batch.is_begin else 0) | (HEAD if batch.is_head else 0)
    place = (batch.log_id, batch.since, batch.following, batch.epoch)
    header = _HEADER.pack(VERSION, flags, 0, *place)
    return [header, *batch.records]


def decode_batch(frames: Sequence[bytes]) -> Batch:
    """Read the frames of a batch, or raise `RemoteViolation`."""
    if not frames or len(frames[0]) != _HEADER.size:
        raise RemoteViolation(f"a batch begins with a header of {_HEADER.size} bytes")
    version, flags, _, log_id, since, following, epoch = _HEADER.unpack(frames[0])
    if version != VERSION:
        raise RemoteViolation(f"version {version} of titanic.replicate is not known here")
    if following < since:
        raise RemoteViolation("a batch ends before it begins")
    is_begin, is_head = bool(flags & BEGIN), bool(flags & HEAD)
    return Batch(log_id, since, following, frames[1:], is_begin, is_head, epoch)


def of_epoch(frames: Sequence[bytes], epoch: int) -> list[bytes]:
    """Return the frames of a batch that a store has read, with the sender's epoch."""
    at = _HEADER.size - _EPOCH.size
    return [frames[0][:at] + _EPOCH.pack(epoch), *frames[1:]]


def encode_position(log_id: bytes, number: int) -> bytes:
    """Write down where a replica is."""
    return _POSITION.pack(log_id.ljust(16, b"\0"), number)


def decode_position(frames: Sequence[bytes]) -> tuple[bytes, int]:
    """Read where a replica is, from an answer with status 200; or raise `RemoteViolation`."""
    if len(frames) < 2 or len(frames[1]) != _POSITION.size:
        raise RemoteViolation("a replica tells its position in the second frame")
    log_id, number = _POSITION.unpack(frames[1])
    return log_id, number


def encode_superseded(epoch: int) -> tuple[bytes, bytes]:
    """Return what follows a refusal because of a higher epoch."""
    return SUPERSEDED, _EPOCH.pack(epoch)


def decode_superseded(frames: Sequence[bytes]) -> int | None:
    """Return the higher epoch that a refusal tells of; None for any other refusal."""
    if len(frames) < 3 or frames[1] != SUPERSEDED or len(frames[2]) != _EPOCH.size:
        return None
    epoch: int = _EPOCH.unpack(frames[2])[0]
    return epoch


def pack(batch: Batch) -> bytes:
    """Join the frames of a batch, for a store that answers with one payload."""
    pieces: list[bytes] = []
    for frame in encode_batch(batch):
        pieces += (_SIZE.pack(len(frame)), frame)
    return b"".join(pieces)


def unpack(payload: bytes) -> list[bytes]:
    """Return the frames that `pack` has joined."""
    frames, at = [], 0
    while at < len(payload):
        (size,) = _SIZE.unpack_from(payload, at)
        at += _SIZE.size
        frames.append(payload[at : at + size])
        at += size
    return frames
