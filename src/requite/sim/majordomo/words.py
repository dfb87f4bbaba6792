"""Describe messages of Majordomo in words.

All dialects use the words of docs/protocols/mdp-0.3.md; messages of older dialects are marked with
their version.
"""

from __future__ import annotations

from collections.abc import Sequence

from requite.errors import RemoteViolation
from requite.protocols.majordomo.dialects import PeerRole, detect
from requite.protocols.majordomo.wire import (
    NOT_IDEMPOTENT,
    ClientCancel,
    ClientFinal,
    ClientHeartbeat,
    ClientPartial,
    ClientRequest,
    Dialect,
    DrainNotice,
    Progress,
    Ready,
    WorkerCancel,
    WorkerFinal,
    WorkerHeartbeat,
    WorkerPartial,
    WorkerRequest,
)
from requite.protocols.majordomo.wire import Disconnect as DisconnectCommand
from requite.request import Status
from requite.sim.kernel.transcript import show_body, show_frame
from requite.sim.majordomo.parties import BROKER


def describe(sender: str, message: Sequence[bytes]) -> str:
    """Describe a message of any sender."""
    to_broker = sender != BROKER
    frames = list(message)
    found = detect(frames)
    if found is None:
        return f"garbage: {show_body(frames)}"
    role, dialect = found
    mark = "" if dialect.version == "0.3" else f" (MDP {dialect.version})"
    try:
        return _words(_decode(frames, role, dialect, to_broker)) + mark
    except RemoteViolation as violation:
        return f"malformed{mark}: {violation}"


def _decode(frames: list[bytes], role: PeerRole, dialect: Dialect, to_broker: bool) -> object:
    if role is PeerRole.CLIENT:
        return dialect.decode_from_client(frames) if to_broker else dialect.decode_to_client(frames)
    return dialect.decode_from_worker(frames) if to_broker else dialect.decode_to_worker(frames)


def _words(command: object) -> str:
    match command:
        case ClientRequest(service, body, request_id, timeout_ms, flags, key):
            once = ", not idempotent" if flags & NOT_IDEMPOTENT else ""
            named = f" {_id(request_id)}" if request_id else ""
            more = f"{_time(timeout_ms)}{once}{_key(key)}"
            return f"REQUEST{named} to {show_frame(service)}{more}: {show_body(body)}"
        case ClientCancel(request_id):
            return f"CANCEL {_id(request_id)}"
        case ClientPartial(_, body, request_id, index):
            return f"PARTIAL{_named(_id(request_id), index >= 0)}{_index(index)}: {show_body(body)}"
        case ClientFinal(_, body, request_id, status, attempts):
            more = f" {_id(request_id)} {Status(status).name}, attempts {attempts}"
            return f"FINAL{more if request_id else ''}: {show_body(body)}"
        case Ready(service, capacity, interval_ms, lease_ms):
            lease = f", lease {lease_ms} ms" if lease_ms else ""
            more = f", capacity {capacity}, every {interval_ms} ms{lease}" if interval_ms else ""
            return f"READY for {show_frame(service)}{more}"
        case WorkerRequest(_, body, dispatch_id, timeout_ms, attempt, key):
            more = f" {dispatch_id}{_time(timeout_ms)}, attempt {attempt}{_key(key)}"
            return f"REQUEST{more if dispatch_id else ''}: {show_body(body)}"
        case WorkerPartial(_, body, dispatch_id):
            return f"PARTIAL{_named(str(dispatch_id), dispatch_id > 0)}: {show_body(body)}"
        case WorkerFinal(_, body, dispatch_id, status):
            more = f" {dispatch_id} {Status(status).name}"
            return f"FINAL{more if dispatch_id else ''}: {show_body(body)}"
        case WorkerCancel(dispatch_id):
            return f"CANCEL {dispatch_id}"
        case Progress(dispatch_id, extend_ms):
            return f"PROGRESS {dispatch_id}{_time(extend_ms)}"
        case ClientHeartbeat() | WorkerHeartbeat():
            return "HEARTBEAT"
        case DisconnectCommand():
            return "DISCONNECT"
        case DrainNotice():
            return "DRAIN"
    raise AssertionError(f"there is no word for {command!r}")


def _id(request_id: int) -> str:
    """Show an id as slot and sequence number."""
    return f"{request_id >> 32}.{request_id & 0xFFFF_FFFF}"


def _named(name: str, is_there: bool) -> str:
    return f" {name}" if is_there else ""


def _index(index: int) -> str:
    return f" part {index}" if index >= 0 else ""


def _time(timeout_ms: int) -> str:
    return f", {timeout_ms / 1000:g} s" if timeout_ms else ""


def _key(key: bytes) -> str:
    return f", key {show_frame(key)}" if key else ""
