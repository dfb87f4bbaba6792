"""What was said in a run, as text: one line per message, with virtual time and symbolic names.

    0.0031  client-1 → broker    REQUEST 0.1 to echo, 2.5 s: hello
    0.0041    broker → worker-1  REQUEST 1, 2.499 s, attempt 1: hello

A line stands where the message is sent; whether it arrives is another matter. Lines with a star
tell what happens to processes and calls. The words are those of docs/protocols/mdp-0.3.md for all
dialects; messages of the older ones are marked with their version.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any, Final

from requite.engine import Disconnect, Effect, Send, Stopped
from requite.errors import CallError, RemoteViolation
from requite.protocols.majordomo.dialects import Role, detect
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
from requite.request import Reply, Status
from requite.sim.roles import BROKER

if TYPE_CHECKING:
    from requite.sim.history import Call
    from requite.sim.process import Process
    from requite.sim.world import World

_FRAME_SIZE_MAX: Final = 40
_FRAMES_MAX: Final = 5


class Transcript:
    """Collects lines. Heartbeats are left out unless asked for: they would drown the rest."""

    def __init__(self, world: World, *, heartbeats: bool = True) -> None:
        self.lines: list[str] = []
        self._world = world
        self._heartbeats = heartbeats

    def effects(self, process: Process, effects: Iterable[Effect]) -> None:
        """Write down what an engine does."""
        for effect in effects:
            if isinstance(effect, Send):
                self._sent(process.name, effect)
            elif isinstance(effect, Disconnect):
                self._add(f"{process.name} closes its connection to {_name_of(effect.peer)}")
            elif isinstance(effect, Stopped):
                self._add(f"{process.name} has drained")

    def outcome(self, client: str, call: Call, outcome: Reply | CallError) -> None:
        """Write down how a call ends."""
        if isinstance(outcome, Reply):
            text = f"gets {_body(outcome.frames)}"
        else:
            ran = "may have run" if outcome.may_have_executed else "has not run"
            text = f"fails with {type(outcome).__name__} ({ran}): {outcome}"
        self._add(f"call {call.number} of {client} {text}")

    def event(self, process: str, what: str) -> None:
        """Write down what happens to a process."""
        self._add(f"{process} {what}")

    def _sent(self, sender: str, send: Send) -> None:
        line = describe(send.message, to_broker=sender != BROKER)
        if self._heartbeats or "HEARTBEAT" not in line:
            receiver = _name_of(send.peer)
            self.lines.append(f"{self._world.now:9.4f}  {sender:>10} → {receiver:<10} {line}")

    def _add(self, text: str) -> None:
        self.lines.append(f"{self._world.now:9.4f}  * {text}")


def _name_of(peer: Any) -> str:
    name: str = peer.stream.other.process.name
    return name


# --- messages in words ----------------------------------------------------------------------------
def describe(message: Sequence[bytes], *, to_broker: bool) -> str:
    """Say in words what a message says, whoever sent it."""
    frames = list(message)
    found = detect(frames)
    if found is None:
        return f"garbage: {_body(frames)}"
    role, dialect = found
    mark = "" if dialect.version == "0.3" else f" (MDP {dialect.version})"
    try:
        return _words(_decode(frames, role, dialect, to_broker)) + mark
    except RemoteViolation as violation:
        return f"malformed{mark}: {violation}"


def _decode(frames: list[bytes], role: Role, dialect: Dialect, to_broker: bool) -> object:
    if role is Role.CLIENT:
        return dialect.decode_from_client(frames) if to_broker else dialect.decode_to_client(frames)
    return dialect.decode_from_worker(frames) if to_broker else dialect.decode_to_worker(frames)


def _words(command: object) -> str:
    match command:
        case ClientRequest(service, body, request_id, timeout_ms, flags, key):
            once = ", not idempotent" if flags & NOT_IDEMPOTENT else ""
            named = f" {_id(request_id)}" if request_id else ""
            more = f"{_time(timeout_ms)}{once}{_key(key)}"
            return f"REQUEST{named} to {_frame(service)}{more}: {_body(body)}"
        case ClientCancel(request_id):
            return f"CANCEL {_id(request_id)}"
        case ClientPartial(_, body, request_id, index):
            return f"PARTIAL{_named(_id(request_id), index >= 0)}{_index(index)}: {_body(body)}"
        case ClientFinal(_, body, request_id, status, attempts):
            more = f" {_id(request_id)} {Status(status).name}, attempts {attempts}"
            return f"FINAL{more if request_id else ''}: {_body(body)}"
        case Ready(service, capacity, interval_ms, lease_ms):
            lease = f", lease {lease_ms} ms" if lease_ms else ""
            more = f", capacity {capacity}, every {interval_ms} ms{lease}" if interval_ms else ""
            return f"READY for {_frame(service)}{more}"
        case WorkerRequest(_, body, dispatch_id, timeout_ms, attempt, key):
            more = f" {dispatch_id}{_time(timeout_ms)}, attempt {attempt}{_key(key)}"
            return f"REQUEST{more if dispatch_id else ''}: {_body(body)}"
        case WorkerPartial(_, body, dispatch_id):
            return f"PARTIAL{_named(str(dispatch_id), dispatch_id > 0)}: {_body(body)}"
        case WorkerFinal(_, body, dispatch_id, status):
            more = f" {dispatch_id} {Status(status).name}"
            return f"FINAL{more if dispatch_id else ''}: {_body(body)}"
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
    """Show slot and sequence number of an id apart."""
    return f"{request_id >> 32}.{request_id & 0xFFFF_FFFF}"


def _named(name: str, is_there: bool) -> str:
    return f" {name}" if is_there else ""


def _index(index: int) -> str:
    return f" part {index}" if index >= 0 else ""


def _time(timeout_ms: int) -> str:
    return f", {timeout_ms / 1000:g} s" if timeout_ms else ""


def _key(key: bytes) -> str:
    return f", key {_frame(key)}" if key else ""


def _body(frames: Sequence[bytes]) -> str:
    shown = " | ".join(_frame(frame) for frame in frames[:_FRAMES_MAX])
    return shown + (f" | … {len(frames)} frames" if len(frames) > _FRAMES_MAX else "")


def _frame(frame: bytes) -> str:
    if not frame:
        return '""'
    text = frame[:_FRAME_SIZE_MAX].decode("utf-8", "replace")
    shown = text if text.isprintable() and "\ufffd" not in text else f"0x{frame[:12].hex()}"
    return shown if len(frame) <= _FRAME_SIZE_MAX else f"{shown}… ({len(frame)} bytes)"
