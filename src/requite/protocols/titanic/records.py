"""The records of Titanic's log, byte by byte in docs/protocols/titanic-log.md.

Every record begins with the same 28 bytes: kind, version, flags, the request's UUID, wall time. In
version 2 the owner of the request follows, in version 3 the owner, if any, and the trace context,
in version 4 the owner, if any.
What comes then depends on the kind:

| kind | meaning | then |
|---|---|---|
| SUBMITTED | a request was accepted | key, service, frames |
| ANSWERED | its reply arrived | attempts, frames |
| TRIED | attempts failed; with the flag POISONED, no more follow | attempts, reason |
| CLOSED | the request may be removed | expiry of the key, key |
| ROLE | whether this store is a replica or was superseded (flags) | log id, next number, epoch |

All integers are little-endian. `decode` raises `RemoteViolation` for an invalid record.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from typing import Final, NamedTuple

from requite.errors import RemoteViolation
from requite.trace_context import NO_TRACE, TRACE_SIZE, is_valid

VERSION: Final = 1
OWNED: Final = 2
"""The version of records of a request with an owner. A requite that does not know it refuses them:
it would show the request to everybody."""
TRACED: Final = 3
"""The version of a SUBMITTED with a trace context."""
NEGATIVE: Final = 4
"""The version of an ANSWERED whose frame is the reason of a negative reply. A requite that does not
know it refuses it: it would return the reason as the reply."""
VERSIONS: Final = (VERSION, OWNED, TRACED, NEGATIVE)
OWNER_SIZE_MAX: Final = 255
"""The maximum size of an owner's name, in bytes of UTF-8."""

SUBMITTED: Final = 1
ANSWERED: Final = 2
TRIED: Final = 3
CLOSED: Final = 4
ROLE: Final = 5
KINDS: Final = {
    SUBMITTED: "SUBMITTED",
    ANSWERED: "ANSWERED",
    TRIED: "TRIED",
    CLOSED: "CLOSED",
    ROLE: "ROLE",
}

POISONED: Final = 1  # flag of TRIED: no more attempts
EXPIRED: Final = 1  # flag of CLOSED: closed by time, not by a client
ERASURE: Final = 2  # flag of CLOSED: erase what is not needed before it; it closes no request
REPLICA: Final = 1  # flag of ROLE: stores another Titanic's records, dispatches nothing
SUPERSEDED: Final = 2  # flag of ROLE: its replica was promoted; dispatches nothing
PARTIAL: Final = 4  # flag of ROLE: a full copy has begun and is not complete

_ONLY_OF: Final = {TRACED: SUBMITTED, NEGATIVE: ANSWERED}

HEAD: Final = struct.Struct("<BBH16sQ")  # kind, version, flags, UUID, microseconds since 1970
# After the head, and the owner if there is one:
_SUBMITTED: Final = struct.Struct("<BBI")  # sizes of key and service, number of frames
_ANSWERED: Final = struct.Struct("<II")  # attempts, number of frames
_TRIED: Final = struct.Struct("<I")  # attempts
_CLOSED: Final = struct.Struct("<Q")  # microseconds since 1970
_ROLE: Final = struct.Struct("<16sQQ")  # log id, next number, epoch
_SIZE: Final = struct.Struct("<I")
_NO_UUID: Final = bytes(16)


class Submitted(NamedTuple):
    """A request was accepted, at `at_us` (microseconds since 1970). `owner` is the principal that
    submitted it; b"": without one. `trace`: its trace context, b"" without one."""

    uuid: bytes
    at_us: int
    service: bytes
    key: bytes
    frames: Sequence[bytes]
    owner: bytes = b""
    trace: bytes = b""


class Outline(NamedTuple):
    """A `Submitted` without its frames, of which only the total `size` is known, in bytes."""

    uuid: bytes
    at_us: int
    service: bytes
    key: bytes
    size: int
    owner: bytes = b""
    trace: bytes = b""


class Answered(NamedTuple):
    """The reply to a request arrived, at the `attempts`-th attempt. `is_negative`: it is a negative
    one, and its only frame is the reason."""

    uuid: bytes
    at_us: int
    attempts: int
    frames: Sequence[bytes]
    owner: bytes = b""
    is_negative: bool = False


class Tried(NamedTuple):
    """`attempts` attempts have failed, the last one because of `reason`.

    Zero attempts and no reason: an operator has requested a retry.
    """

    uuid: bytes
    at_us: int
    attempts: int
    poisoned: bool
    reason: str
    owner: bytes = b""


class Closed(NamedTuple):
    """A request may be removed. Its idempotency key remains valid until `key_until_us`.

    `erasure`: no request is closed, but all records before this one that are not needed must be
    removed from the disk soon.
    """

    uuid: bytes
    at_us: int
    key: bytes
    key_until_us: int
    expired: bool = False
    owner: bytes = b""
    erasure: bool = False


class StoreRole(NamedTuple):
    """This store is a replica that has everything before `next_number` of the log `log_id`, or
    (`replica` False) has ceased to be one. `partial`: a full copy is not complete.

    `epoch` counts promotions: of several Titanics with the same requests, the one with the highest
    epoch is active. `superseded`: another Titanic has a higher epoch.
    """

    at_us: int
    replica: bool
    log_id: bytes
    next_number: int
    epoch: int = 0
    superseded: bool = False
    partial: bool = False


Entry = Submitted | Answered | Tried | Closed | StoreRole


def _head(
    kind: int, flags: int, uuid: bytes, at_us: int, owner: bytes, version: int = OWNED
) -> bytes:
    """Encode what all kinds have in common. `version`: that of a record with an owner, or another
    one that has room for it."""
    if version == OWNED and not owner:
        return HEAD.pack(kind, VERSION, flags, uuid, at_us)
    return HEAD.pack(kind, version, flags, uuid, at_us) + bytes((len(owner),)) + owner


def encode_submitted(
    uuid: bytes,
    at_us: int,
    service: bytes,
    key: bytes,
    frames: Sequence[bytes],
    owner: bytes = b"",
    trace: bytes = b"",
) -> bytes:
    """Encode a SUBMITTED. On the hot path, with a fast case for one frame."""
    count = len(frames)
    if trace:
        head = _head(SUBMITTED, 0, uuid, at_us, owner, TRACED) + trace
    else:
        head = _head(SUBMITTED, 0, uuid, at_us, owner)
    sizes = _SUBMITTED.pack(len(key), len(service), count)
    if count == 1:
        body = frames[0]
        return b"".join((head, sizes, key, service, _SIZE.pack(len(body)), body))
    return b"".join((head, sizes, key, service, *_framed(frames)))


def encode_answered(
    uuid: bytes,
    at_us: int,
    attempts: int,
    frames: Sequence[bytes],
    owner: bytes = b"",
    *,
    is_negative: bool = False,
) -> bytes:
    """Encode an ANSWERED."""
    head = _head(ANSWERED, 0, uuid, at_us, owner, NEGATIVE if is_negative else OWNED)
    return b"".join((head, _ANSWERED.pack(attempts, len(frames)), *_framed(frames)))


def encode_tried(
    uuid: bytes, at_us: int, attempts: int, poisoned: bool, reason: str, owner: bytes = b""
) -> bytes:
    """Encode a TRIED."""
    head = _head(TRIED, POISONED if poisoned else 0, uuid, at_us, owner)
    return head + _TRIED.pack(attempts) + reason.encode()


def encode_closed(
    uuid: bytes,
    at_us: int,
    key: bytes,
    key_until_us: int,
    *,
    expired: bool = False,
    owner: bytes = b"",
) -> bytes:
    """Encode a CLOSED."""
    head = _head(CLOSED, EXPIRED if expired else 0, uuid, at_us, owner)
    return head + _CLOSED.pack(key_until_us) + key


def encode_erasure(at_us: int) -> bytes:
    """Encode the CLOSED that demands to erase what is not needed before it."""
    return _head(CLOSED, ERASURE, _NO_UUID, at_us, b"") + _CLOSED.pack(0)


def encode_role(role: StoreRole) -> bytes:
    """Encode a ROLE."""
    flags = REPLICA if role.replica else 0
    flags |= SUPERSEDED if role.superseded else 0
    flags |= PARTIAL if role.partial else 0
    place = (role.log_id, role.next_number, role.epoch)
    return _head(ROLE, flags, _NO_UUID, role.at_us, b"") + _ROLE.pack(*place)


def peek(payload: bytes | memoryview) -> tuple[int, bytes]:
    """Return kind and UUID, or raise `RemoteViolation`."""
    if len(payload) < HEAD.size:
        raise RemoteViolation(f"the record has less than {HEAD.size} bytes, the minimum")
    kind, version, _flags, uuid, _at_us = HEAD.unpack_from(payload)
    if version not in VERSIONS or kind not in KINDS or _ONLY_OF.get(version, kind) != kind:
        raise _unsupported(kind, version)
    return kind, uuid


def outline(payload: bytes | memoryview) -> Outline:
    """Return the outline of a SUBMITTED, or raise `RemoteViolation`. In half the time of `decode`:
    it is most of what a start with many waiting requests costs."""
    if len(payload) < HEAD.size:
        raise RemoteViolation(f"the record has less than {HEAD.size} bytes, the minimum")
    kind, version, _flags, uuid, at_us = HEAD.unpack_from(payload)
    if kind != SUBMITTED or version not in VERSIONS or version == NEGATIVE:
        raise _unsupported(kind, version)
    owner, at = _owner_of(payload)
    trace, at = _trace_of(payload, at)
    try:
        key_size, service_size, count = _SUBMITTED.unpack_from(payload, at)
    except struct.error as error:
        raise _too_short(kind, error) from error
    at += _SUBMITTED.size
    key = bytes(payload[at : at + key_size])
    at += key_size
    service = bytes(payload[at : at + service_size])
    size = len(payload) - at - service_size - count * _SIZE.size
    return Outline(uuid, at_us, service, key, size, owner, trace)


def body_size(payload: bytes | memoryview) -> int:
    """Return the total size of the frames of a SUBMITTED or an ANSWERED, in bytes."""
    _owner, at = _owner_of(payload)
    if payload[0] == SUBMITTED:
        at = _trace_of(payload, at)[1]
        key_size, service_size, count = _SUBMITTED.unpack_from(payload, at)
        around = at + _SUBMITTED.size + int(key_size) + int(service_size)
    else:
        around, count = at + _ANSWERED.size, _ANSWERED.unpack_from(payload, at)[1]
    return len(payload) - around - int(count) * _SIZE.size


def _unsupported(kind: int, version: int) -> RemoteViolation:
    return RemoteViolation(
        f"a record of kind {kind}, version {version} is not supported; use a newer requite"
    )


def _too_short(kind: int, error: struct.error) -> RemoteViolation:
    return RemoteViolation(f"a record of kind {KINDS[kind]} is too short: {error}")


def decode(payload: bytes | memoryview, *, bodies: bool = True) -> Entry:
    """Decode any record, or raise `RemoteViolation`; without `bodies`, leave frames out."""
    kind, uuid = peek(payload)
    flags, at_us = HEAD.unpack_from(payload)[2], HEAD.unpack_from(payload)[4]
    owner, at = _owner_of(payload)
    try:
        if kind == SUBMITTED:
            trace, at = _trace_of(payload, at)
            service, key, frames = _decode_submitted(payload, at, bodies)
            return Submitted(uuid, at_us, service, key, frames, owner, trace)
        if kind == ANSWERED:
            attempts, count = _ANSWERED.unpack_from(payload, at)
            frames = _unframed(payload, at + _ANSWERED.size, count) if bodies else []
            return Answered(uuid, at_us, attempts, frames, owner, payload[1] == NEGATIVE)
        if kind == TRIED:
            (attempts,) = _TRIED.unpack_from(payload, at)
            reason = bytes(payload[at + _TRIED.size :]).decode("utf-8", "replace")
            return Tried(uuid, at_us, attempts, bool(flags & POISONED), reason, owner)
        if kind == CLOSED:
            (until_us,) = _CLOSED.unpack_from(payload, at)
            key = bytes(payload[at + _CLOSED.size :])
            is_expired, is_erasure = bool(flags & EXPIRED), bool(flags & ERASURE)
            return Closed(uuid, at_us, key, until_us, is_expired, owner, is_erasure)
        is_superseded, is_partial = bool(flags & SUPERSEDED), bool(flags & PARTIAL)
        log_id, number, epoch = _ROLE.unpack(payload[at:])
        is_replica = bool(flags & REPLICA)
        return StoreRole(at_us, is_replica, log_id, number, epoch, is_superseded, is_partial)
    except struct.error as error:
        raise _too_short(kind, error) from error


def _owner_of(payload: bytes | memoryview) -> tuple[bytes, int]:
    """Return the owner of a record, and the offset of what follows."""
    at = HEAD.size
    version = payload[1]
    if version == VERSION:
        return b"", at
    size = payload[at] if len(payload) > at else 0
    owner = bytes(payload[at + 1 : at + 1 + size])
    if len(owner) < size or not (owner or version != OWNED):
        raise RemoteViolation(f"a record of version {version} has no owner, or ends within it")
    return owner, at + 1 + size


def _trace_of(payload: bytes | memoryview, at: int) -> tuple[bytes, int]:
    """Return the trace context of a SUBMITTED at this offset, and the offset of what follows."""
    if payload[1] != TRACED:
        return NO_TRACE, at
    trace = bytes(payload[at : at + TRACE_SIZE])
    if not is_valid(trace):
        raise RemoteViolation(
            "a record of version 3 ends within its trace context, or that is invalid"
        )
    return trace, at + TRACE_SIZE


def _decode_submitted(
    payload: bytes | memoryview, at: int, bodies: bool
) -> tuple[bytes, bytes, list[bytes]]:
    """Return the service, the key and the frames."""
    key_size, service_size, count = _SUBMITTED.unpack_from(payload, at)
    at += _SUBMITTED.size
    key = bytes(payload[at : at + key_size])
    at += key_size
    service = bytes(payload[at : at + service_size])
    frames = _unframed(payload, at + service_size, count) if bodies else []
    return service, key, frames


def _framed(frames: Sequence[bytes]) -> list[bytes]:
    """Prefix each frame with its size."""
    pieces: list[bytes] = []
    for frame in frames:
        pieces += (_SIZE.pack(len(frame)), frame)
    return pieces


def _unframed(payload: bytes | memoryview, at: int, count: int) -> list[bytes]:
    frames: list[bytes] = []
    for _ in range(count):
        (size,) = _SIZE.unpack_from(payload, at)
        at += _SIZE.size
        frame = bytes(payload[at : at + size])
        if len(frame) != size:
            raise RemoteViolation("a frame of the record is cut off")
        frames.append(frame)
        at += size
    if at != len(payload):
        raise RemoteViolation("the record is longer than its frames")
    return frames
