"""The records of a log of replies (docs/protocols/dedup-log.md), byte by byte.

A record is a head, the key of a request and, if its handler has ended, the reply. The version is 2
if the key begins with a principal, else 1:

    version u8 | kind u8 | at i64 | digest 16 bytes | key size u16 | key
    ENDED also: status u8 | parts u32 | for each: frames u32 | for each: size u32, bytes

All integers are little-endian. `at` is wall time in microseconds since 1970. The last part is the
final reply, those before it are partial replies.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from enum import IntEnum
from typing import Final, NamedTuple

from requite.errors import LogCorrupt, LogMismatch
from requite.request import Status

VERSION: Final = 1
OWNED: Final = 2
"""The version of records whose key begins with a principal. A requite that does not know it refuses
them: it would not recognise the repetitions."""
PRINCIPAL_SIZE_MAX: Final = 255
"""The maximum size of a principal in a key, in bytes of UTF-8."""
DIGEST_SIZE: Final = 16
NO_DIGEST: Final = bytes(DIGEST_SIZE)
KEY_SIZE_MAX: Final = (1 << 16) - 1
_HEAD: Final = struct.Struct("<BBq16sH")
_U32: Final = struct.Struct("<I")

Frames = Sequence[bytes]


_BY_KEY: Final = ord("k")
_BY_CALL: Final = ord("c")
_OWNED_KINDS: Final = b"KC"  # for a request of a principal


def encode_key(service: bytes, request: bytes, principal: bytes = b"", *, is_call: bool) -> bytes:
    """Encode a key: `request` is the idempotency key or, with `is_call`, the call id.

    Requests of two principals, or of two services, never have the same key. A longer principal than
    `PRINCIPAL_SIZE_MAX` is cut.
    """
    kind = _BY_CALL if is_call else _BY_KEY
    which = len(service).to_bytes(2, "little") + service + request
    if not principal:
        return bytes((kind,)) + which
    principal = principal[:PRINCIPAL_SIZE_MAX]
    return bytes((kind - 0x20, len(principal))) + principal + which


def principal_of(key: bytes) -> bytes:
    """Return the principal of a key; b"" without one."""
    return key[2 : 2 + int.from_bytes(key[1:2])] if _version_of(key) == OWNED else b""


def key_without_principal(key: bytes) -> bytes:
    """Return the key of the same request from a caller without a name; b"" if `key` is one."""
    if _version_of(key) != OWNED:
        return b""
    return bytes((key[0] + 0x20,)) + key[2 + key[1] :]


def _version_of(key: bytes) -> int:
    return OWNED if key[:1] and key[0] in _OWNED_KINDS else VERSION


class Kind(IntEnum):
    """Kind of a record. The numbers are on disks: never reuse one."""

    BEGUN = 1  # the handler is about to start
    ENDED = 2  # the handler has ended, with this reply
    DROPPED = 3  # the outcome is not retained: a repetition runs
    UNKEPT = 4  # the handler has ended, and its reply was too large to be stored, or was erased
    DOUBTED = 5  # the handler had started when the process died; found at this time


class Outcome(NamedTuple):
    """A stored reply: status, partial replies and final reply."""

    status: Status
    parts: Sequence[Frames]
    frames: Frames

    @property
    def size(self) -> int:
        """The bytes of all frames."""
        return sum(len(frame) for part in (*self.parts, self.frames) for frame in part)


class DedupRecord(NamedTuple):
    """A record. Only ENDED has an `outcome`; `digest` is that of the request's body."""

    kind: Kind
    at_us: int
    key: bytes
    digest: bytes = NO_DIGEST
    outcome: Outcome | None = None


def encode(record: DedupRecord) -> bytes:
    """Encode a record."""
    kind, at_us, key, digest, outcome = record
    head = _HEAD.pack(_version_of(key), kind, at_us, digest, len(key)) + key
    if outcome is None:
        return head
    pieces = [head, bytes((outcome.status,)), _U32.pack(len(outcome.parts) + 1)]
    for part in (*outcome.parts, outcome.frames):
        pieces.append(_U32.pack(len(part)))
        for frame in part:
            pieces += (_U32.pack(len(frame)), frame)
    return b"".join(pieces)


def decode(payload: bytes) -> DedupRecord:
    """Decode a record. Raises `LogMismatch` for a newer version, `LogCorrupt` for other errors."""
    return _read(payload, with_outcome=True)


def decode_head(payload: bytes) -> DedupRecord:
    """Decode a record without its reply; raises as `decode` does."""
    return _read(payload, with_outcome=False)


def _read(payload: bytes, *, with_outcome: bool) -> DedupRecord:
    if payload[:1] and payload[0] > OWNED:
        raise LogMismatch(
            f"the log of replies has a record of version {payload[0]}; this requite supports"
            f" versions up to {OWNED}. Use the newer requite, or another folder."
        )
    try:
        record, end = _decode_head(payload)
        if record.kind is not Kind.ENDED:
            if end != len(payload):
                raise ValueError(f"{len(payload) - end} bytes follow its key")
        elif with_outcome:
            return record._replace(outcome=_decode_outcome(payload, end))
    except (struct.error, ValueError, IndexError) as error:
        raise LogCorrupt(f"cannot read a record of {len(payload)} bytes: {error}") from error
    return record


def _decode_head(payload: bytes) -> tuple[DedupRecord, int]:
    """Decode head and key; return the record and the offset behind them."""
    version, code, at_us, digest, key_size = _HEAD.unpack_from(payload)
    start = _HEAD.size
    end = start + key_size
    key = payload[start:end]
    if end > len(payload) or version != _version_of(key):
        raise ValueError("it ends within its key, or its version does not fit its key")
    return DedupRecord(Kind(code), at_us, key, digest), end


def _decode_outcome(payload: bytes, at: int) -> Outcome:
    status = Status(payload[at])
    count, at = _u32(payload, at + 1)
    parts = []
    for _ in range(count):
        part, at = _decode_part(payload, at)
        parts.append(part)
    if at != len(payload) or not parts:
        raise ValueError(f"{len(payload) - at} bytes follow {count} parts")
    return Outcome(status, tuple(parts[:-1]), parts[-1])


def _decode_part(payload: bytes, at: int) -> tuple[Frames, int]:
    count, at = _u32(payload, at)
    frames = []
    for _ in range(count):
        size, at = _u32(payload, at)
        if at + size > len(payload):
            raise ValueError("it ends within a frame")
        frames.append(payload[at : at + size])
        at += size
    return tuple(frames), at


def _u32(payload: bytes, at: int) -> tuple[int, int]:
    number: int = _U32.unpack_from(payload, at)[0]
    return number, at + _U32.size
