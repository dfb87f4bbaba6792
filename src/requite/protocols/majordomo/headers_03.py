"""The headers of MDP 0.3: one layout per command, and a generic decoder and encoder.

A header starts with a *prefix* of seven bytes, the magic of the dialogue and the command byte;
fields of fixed size follow, then names and keys. `decode` finds the command by its byte in the
table of its direction, and checks the sizes; `encode` refuses values that do not fit.

Source: docs/protocols/mdp-0.3.md, sections "Messages" and "Status codes" (rule ids in brackets).
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, NamedTuple, TypeVar

from requite.engine import Message
from requite.errors import LocalViolation, RemoteViolation
from requite.protocols.majordomo.wire import (
    NOT_IDEMPOTENT,
    SERVICE_NAME_SIZE_MAX,
    ClientCancel,
    ClientFinal,
    ClientHeartbeat,
    ClientPartial,
    ClientRequest,
    Disconnect,
    DrainNotice,
    FromClient,
    FromWorker,
    Progress,
    Ready,
    ToClient,
    ToWorker,
    WorkerCancel,
    WorkerFinal,
    WorkerHeartbeat,
    WorkerPartial,
    WorkerRequest,
)
from requite.trace_context import NO_TRACE, is_valid

CLIENT_MAGIC: Final = b"MDPC03"
WORKER_MAGIC: Final = b"MDPW03"
KEY_SIZE_MAX: Final = 255
STATUS_MAX: Final = 9
PRINCIPAL_SIZE_MAX: Final = 255
REASON_SIZE_MAX: Final = 1000
WORKER_STATUSES: Final = frozenset({0, 1, 7})  # OK, FAILED, CANCELLED: [status-worker]

Command = TypeVar("Command")
_Fields = tuple[Any, ...]
_Build = Callable[[_Fields, bytes, list[bytes]], Command]


class Layout(NamedTuple):
    """The layout of one command's header, and whether it has a body.

    `fixed` starts with the prefix; up to `tail_size_max` bytes of names and keys may follow it.
    """

    name: str
    prefix: bytes
    fixed: struct.Struct
    tail_size_max: int = 0
    has_body: bool = False

    def check(self, message: Message) -> None:
        """Raise `RemoteViolation` unless header and body have valid sizes: [header], [body]."""
        size, size_min = len(message[0]), self.fixed.size
        if size < size_min:
            raise RemoteViolation(f"{self.name}: the header has {size} of {size_min} fixed bytes")
        if size > size_min + self.tail_size_max:
            raise RemoteViolation(
                f"{self.name}: the header has {size} bytes; the maximum is"
                f" {size_min + self.tail_size_max}"
            )
        if self.has_body != (len(message) > 1):
            raise RemoteViolation(
                f"{self.name}: there are {len(message) - 1} body frames, "
                + ("at least 1 is needed" if self.has_body else "none is allowed")
            )


def _layout(
    name: str, magic: bytes, code: int, fields: str, tail_size_max: int = 0, has_body: bool = False
) -> Layout:
    fixed = struct.Struct("!7s" + fields)
    return Layout(name, magic + bytes([code]), fixed, tail_size_max, has_body)


C_REQUEST: Final = _layout(
    "REQUEST", CLIENT_MAGIC, 1, "QIBB16s", SERVICE_NAME_SIZE_MAX + KEY_SIZE_MAX, has_body=True
)
C_PARTIAL: Final = _layout("PARTIAL", CLIENT_MAGIC, 2, "QI", has_body=True)
C_FINAL: Final = _layout("FINAL", CLIENT_MAGIC, 3, "QBB", has_body=True)
C_CANCEL: Final = _layout("CANCEL", CLIENT_MAGIC, 4, "Q")
C_HEARTBEAT: Final = _layout("HEARTBEAT", CLIENT_MAGIC, 5, "I")

C_REQUEST_TRACED: Final = _layout(
    "REQUEST_TRACED",
    CLIENT_MAGIC,
    6,
    "QIBB16s25s",
    SERVICE_NAME_SIZE_MAX + KEY_SIZE_MAX,
    has_body=True,
)

C_REQUEST_FOR: Final = _layout(
    "REQUEST_FOR",
    CLIENT_MAGIC,
    7,
    "QIBBB16s25s",
    SERVICE_NAME_SIZE_MAX + PRINCIPAL_SIZE_MAX + KEY_SIZE_MAX,
    has_body=True,
)

W_READY: Final = _layout("READY", WORKER_MAGIC, 1, "HII8s", SERVICE_NAME_SIZE_MAX)
W_REQUEST: Final = _layout("REQUEST", WORKER_MAGIC, 2, "QIB16s", KEY_SIZE_MAX, has_body=True)
W_PARTIAL: Final = _layout("PARTIAL", WORKER_MAGIC, 3, "Q", has_body=True)
W_FINAL: Final = _layout("FINAL", WORKER_MAGIC, 4, "QB", has_body=True)
W_HEARTBEAT: Final = _layout("HEARTBEAT", WORKER_MAGIC, 5, "I")
W_DISCONNECT: Final = _layout("DISCONNECT", WORKER_MAGIC, 6, "")
B_DISCONNECT: Final = _layout("DISCONNECT", WORKER_MAGIC, 6, "", REASON_SIZE_MAX)
W_PROGRESS: Final = _layout("PROGRESS", WORKER_MAGIC, 7, "QI")
W_DRAIN: Final = _layout("DRAIN", WORKER_MAGIC, 8, "")
W_CANCEL: Final = _layout("CANCEL", WORKER_MAGIC, 9, "Q")
W_REQUEST_OF: Final = _layout(
    "REQUEST_OF", WORKER_MAGIC, 10, "QIBB16s", PRINCIPAL_SIZE_MAX + KEY_SIZE_MAX, has_body=True
)
W_REQUEST_TRACED: Final = _layout(
    "REQUEST_TRACED",
    WORKER_MAGIC,
    11,
    "QIBB16s25s",
    PRINCIPAL_SIZE_MAX + KEY_SIZE_MAX,
    has_body=True,
)


# --- decoding -------------------------------------------------------------------------------------
def _client_request(fields: _Fields, tail: bytes, body: list[bytes]) -> ClientRequest:
    request_id, timeout_ms, flags, service_size, call_id, *rest = fields
    if service_size > len(tail):
        raise RemoteViolation(
            f"REQUEST: the header ends after {len(tail)} of {service_size} bytes of service name"
        )
    service, key = tail[:service_size], tail[service_size:]
    if len(key) > KEY_SIZE_MAX:
        raise RemoteViolation(
            f"REQUEST: the key has {len(key)} bytes; the maximum is {KEY_SIZE_MAX}"
        )
    # The other flags are reserved: [flags].
    flags &= NOT_IDEMPOTENT
    trace = _valid(rest[0]) if rest else NO_TRACE
    return ClientRequest(service, body, request_id, timeout_ms, flags, key, call_id, b"", trace)


def _client_request_for(fields: _Fields, tail: bytes, body: list[bytes]) -> ClientRequest:
    request_id, timeout_ms, flags, service_size, size, call_id, trace = fields
    principal = tail[service_size : service_size + size]
    if not principal or len(principal) < size:
        raise RemoteViolation(
            f"REQUEST_FOR: {len(tail)} bytes cannot be a service name of {service_size} bytes, a"
            f" principal of {size} and a key"
        )
    try:
        principal.decode()
    except UnicodeDecodeError as error:
        raise RemoteViolation(f"REQUEST_FOR: the principal {principal!r} is not UTF-8") from error
    rest = tail[:service_size] + tail[service_size + size :]
    common = (request_id, timeout_ms, flags, service_size, call_id, trace)
    request = _client_request(common, rest, body)
    request.principal = principal
    return request


def _valid(trace: bytes) -> bytes:
    """Return a trace context, or none in place of an invalid one: [trace]."""
    return trace if is_valid(trace) else NO_TRACE


def _client_final(fields: _Fields, _tail: bytes, body: list[bytes]) -> ClientFinal:
    request_id, status, attempts = fields
    if status > STATUS_MAX:
        raise RemoteViolation(f"FINAL: unknown status {status}")
    return ClientFinal(b"", body, request_id, status, attempts)


def _ready(fields: _Fields, tail: bytes, _body: list[bytes]) -> Ready:
    capacity, interval_ms, lease_ms, instance = fields
    if not capacity:
        raise RemoteViolation("READY: the capacity must be at least 1, not 0")
    return Ready(tail, capacity, interval_ms, lease_ms, instance)


def _worker_request(fields: _Fields, tail: bytes, body: list[bytes]) -> WorkerRequest:
    dispatch_id, timeout_ms, attempt, call_id = fields
    return WorkerRequest(b"", body, dispatch_id, timeout_ms, attempt, tail, call_id)


def _worker_request_of(fields: _Fields, tail: bytes, body: list[bytes]) -> WorkerRequest:
    dispatch_id, timeout_ms, attempt, size, call_id = fields
    principal, key = tail[:size], tail[size:]
    if len(principal) < size or len(key) > KEY_SIZE_MAX:
        raise RemoteViolation(
            f"REQUEST_OF: {len(tail)} bytes cannot be a principal of {size} bytes and a key"
        )
    return WorkerRequest(b"", body, dispatch_id, timeout_ms, attempt, key, call_id, principal)


def _worker_request_traced(fields: _Fields, tail: bytes, body: list[bytes]) -> WorkerRequest:
    request = _worker_request_of(fields[:-1], tail, body)
    request.trace = _valid(fields[-1])
    return request


def _worker_final(fields: _Fields, _tail: bytes, body: list[bytes]) -> WorkerFinal:
    dispatch_id, status = fields
    if status not in WORKER_STATUSES:
        raise RemoteViolation(f"FINAL: a worker must not send the status {status}")
    return WorkerFinal(b"", body, dispatch_id, status)


FROM_CLIENT: Final[dict[int, tuple[Layout, _Build[FromClient]]]] = {
    1: (C_REQUEST, _client_request),
    4: (C_CANCEL, lambda fields, _tail, _body: ClientCancel(*fields)),
    5: (C_HEARTBEAT, lambda fields, _tail, _body: ClientHeartbeat(*fields)),
    6: (C_REQUEST_TRACED, _client_request),
    7: (C_REQUEST_FOR, _client_request_for),
}
TO_CLIENT: Final[dict[int, tuple[Layout, _Build[ToClient]]]] = {
    2: (C_PARTIAL, lambda fields, _tail, body: ClientPartial(b"", body, *fields)),
    3: (C_FINAL, _client_final),
    5: (C_HEARTBEAT, lambda fields, _tail, _body: ClientHeartbeat(*fields)),
}
FROM_WORKER: Final[dict[int, tuple[Layout, _Build[FromWorker]]]] = {
    1: (W_READY, _ready),
    3: (W_PARTIAL, lambda fields, _tail, body: WorkerPartial(b"", body, *fields)),
    4: (W_FINAL, _worker_final),
    5: (W_HEARTBEAT, lambda fields, _tail, _body: WorkerHeartbeat(*fields)),
    6: (W_DISCONNECT, lambda _fields, _tail, _body: Disconnect()),
    7: (W_PROGRESS, lambda fields, _tail, _body: Progress(*fields)),
    8: (W_DRAIN, lambda _fields, _tail, _body: DrainNotice()),
}
TO_WORKER: Final[dict[int, tuple[Layout, _Build[ToWorker]]]] = {
    2: (W_REQUEST, _worker_request),
    5: (W_HEARTBEAT, lambda fields, _tail, _body: WorkerHeartbeat(*fields)),
    6: (B_DISCONNECT, lambda _fields, tail, _body: Disconnect(tail)),
    9: (W_CANCEL, lambda fields, _tail, _body: WorkerCancel(*fields)),
    10: (W_REQUEST_OF, _worker_request_of),
    11: (W_REQUEST_TRACED, _worker_request_traced),
}


def decode(
    message: Message, magic: bytes, commands: Mapping[int, tuple[Layout, _Build[Command]]]
) -> Command:
    """Decode any command of one direction, or raise `RemoteViolation`."""
    if not message:
        raise RemoteViolation("the message has no frames")
    header = message[0]
    if header[:6] != magic:
        raise RemoteViolation(f"the header must start with {magic!r}, not {header[:6]!r}")
    if len(header) == 6:
        raise RemoteViolation("the header ends before the command byte")
    row = commands.get(header[6])
    if row is None:
        raise RemoteViolation(f"{magic!r} has no command {header[6]:#04x} in this direction")
    layout, build = row
    layout.check(message)
    fixed = layout.fixed
    return build(fixed.unpack_from(header)[1:], header[fixed.size :], message[1:])


# --- encoding -------------------------------------------------------------------------------------
def encode(
    layout: Layout, fields: _Fields, tail: bytes = b"", body: Sequence[bytes] = ()
) -> Message:
    """Encode any command, or raise `LocalViolation` for values that do not fit its layout."""
    if layout.has_body and not body:
        raise no_body(layout)
    if len(tail) > layout.tail_size_max:
        raise LocalViolation(f"{layout.name}: {len(tail)} bytes of names and keys are too many")
    try:
        return [layout.fixed.pack(layout.prefix, *fields) + tail, *body]
    except struct.error as error:
        raise no_room(layout, fields) from error


def no_body(layout: Layout) -> LocalViolation:
    return LocalViolation(f"{layout.name}: a body must have at least one frame, which may be empty")


def no_room(layout: Layout, fields: _Fields) -> LocalViolation:
    return LocalViolation(f"{layout.name}: one of {fields} is out of the range of its field")


def check_key(layout: Layout, key: bytes) -> None:
    if len(key) > KEY_SIZE_MAX:
        raise LocalViolation(
            f"{layout.name}: the key has {len(key)} bytes; the maximum is {KEY_SIZE_MAX}"
        )


def check_size(what: str, given: bytes, size: int) -> None:
    if len(given) != size:  # `struct` would truncate or pad it
        raise LocalViolation(f"a {what} must have {size} bytes, not {len(given)}")
