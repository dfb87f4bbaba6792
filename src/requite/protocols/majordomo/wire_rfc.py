"""MDP 0.1 and 0.2 on the wire: each field is a frame.

One class implements both: the first frames of a command, its *head*, identify it. MDP 0.1 has an
empty first frame, for REQ sockets, and no command byte between client and broker; MDP 0.2 has
neither difference, and splits REPLY into PARTIAL and FINAL. After the head both are the same.

Fields that these dialects lack (ids, timeouts, flags, keys, statuses, counts) are dropped by
encoding, and have their defaults after decoding; encoding a command that they lack raises
`LocalViolation`. A client address may be any frame, a body frame may be empty.

Sources: 7/MDP (0.1) and 18/MDP (0.2), sections "MDP/Client" and "MDP/Worker".
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final, NamedTuple, NoReturn, TypeVar

from requite.engine import Message
from requite.errors import LocalViolation, RemoteViolation
from requite.protocols.majordomo.wire import (
    ClientCancel,
    ClientFinal,
    ClientHeartbeat,
    ClientPartial,
    ClientRequest,
    Command,
    Dialect,
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

Head = tuple[bytes, ...]
Made = TypeVar("Made")
_Build = Callable[[Message], Made]
_WithBody = Callable[[bytes, list[bytes]], Made]
_Write = Callable[[Any], Message]


class Heads(NamedTuple):
    """The frames that each command starts with; all heads of one direction are equally long."""

    client_request: Head
    client_partial: Head | None
    client_final: Head
    ready: Head
    worker_request: Head
    worker_partial: Head | None
    worker_final: Head
    heartbeat: Head
    disconnect: Head


# --- decoders of the frames after a head ----------------------------------------------------------
def _named(size: int, make: _WithBody[Made]) -> _Build[Made]:
    """Decode a service name and a body."""

    def build(message: Message) -> Made:
        if len(message) < size + 2:
            raise RemoteViolation(
                f"the message has {len(message)} frames, at least {size + 2} are needed: "
                "a service name and a body"
            )
        return make(message[size], message[size + 1 :])

    return build


def _addressed(size: int, make: _WithBody[Made]) -> _Build[Made]:
    """Decode a client address, the empty frame behind it, and a body."""

    def build(message: Message) -> Made:
        if len(message) < size + 3:
            raise RemoteViolation(
                f"the message has {len(message)} frames, at least {size + 3} are needed: "
                "a client address, an empty frame and a body"
            )
        if message[size + 1]:
            raise RemoteViolation("the frame after the client address is not empty")
        return make(message[size], message[size + 2 :])

    return build


def _ready(size: int) -> _Build[Ready]:
    """Decode a service name and nothing else."""

    def build(message: Message) -> Ready:
        if len(message) != size + 1:
            raise RemoteViolation(f"READY has {len(message)} frames, {size + 1} are needed")
        return Ready(message[size])

    return build


def _bare(size: int, command: Made) -> _Build[Made]:
    """Decode a command that consists only of its head."""

    def build(message: Message) -> Made:
        if len(message) != size:
            name = type(command).__name__
            raise RemoteViolation(f"{name} has {len(message)} frames, {size} are needed")
        return command

    return build


class RfcDialect:
    """The codec of MDP 0.1 or 0.2, by its `Heads`."""

    has_ids: bool = False

    def __init__(self, version: str, heads: Heads) -> None:
        self.version: str = version
        self.has_partials: bool = heads.client_partial is not None
        self._heads = heads
        c, w = len(heads.client_request), len(heads.ready)
        heartbeat = _bare(w, WorkerHeartbeat())
        disconnect = _bare(w, Disconnect())
        self._head_size_client = c
        self._head_size_worker = w
        self._from_client: dict[Head, _Build[FromClient]] = {
            heads.client_request: _named(c, ClientRequest)
        }
        self._to_client: dict[Head, _Build[ToClient]] = {heads.client_final: _named(c, ClientFinal)}
        self._from_worker: dict[Head, _Build[FromWorker]] = {
            heads.ready: _ready(w),
            heads.worker_final: _addressed(w, WorkerFinal),
            heads.heartbeat: heartbeat,
            heads.disconnect: disconnect,
        }
        self._to_worker: dict[Head, _Build[ToWorker]] = {
            heads.worker_request: _addressed(w, WorkerRequest),
            heads.heartbeat: heartbeat,
            heads.disconnect: disconnect,
        }
        self._encoders: dict[type, _Write] = {
            ClientRequest: _write_named(heads.client_request),
            ClientFinal: _write_named(heads.client_final),
            WorkerRequest: _write_addressed(heads.worker_request),
            WorkerFinal: _write_addressed(heads.worker_final),
            Ready: lambda command: [*heads.ready, command.service],
            WorkerHeartbeat: lambda _command: [*heads.heartbeat],
            Disconnect: lambda _command: [*heads.disconnect],
        }
        if heads.client_partial is not None:
            self._to_client[heads.client_partial] = _named(c, ClientPartial)
            self._encoders[ClientPartial] = _write_named(heads.client_partial)
        if heads.worker_partial is not None:
            self._from_worker[heads.worker_partial] = _addressed(w, WorkerPartial)
            self._encoders[WorkerPartial] = _write_addressed(heads.worker_partial)

    # --- decoding ---
    def decode_from_client(self, message: Message) -> FromClient:
        """Decode at the broker: REQUEST."""
        build = self._from_client.get(tuple(message[: self._head_size_client]))
        return build(message) if build else self._unknown(message, "from a client")

    def decode_to_client(self, message: Message) -> ToClient:
        """Decode at the client: PARTIAL, FINAL (0.1: the reply)."""
        build = self._to_client.get(tuple(message[: self._head_size_client]))
        return build(message) if build else self._unknown(message, "to a client")

    def decode_from_worker(self, message: Message) -> FromWorker:
        """Decode at the broker: READY, PARTIAL, FINAL (0.1: REPLY), HEARTBEAT, DISCONNECT."""
        build = self._from_worker.get(tuple(message[: self._head_size_worker]))
        return build(message) if build else self._unknown(message, "from a worker")

    def decode_to_worker(self, message: Message) -> ToWorker:
        """Decode at the worker: REQUEST, HEARTBEAT, DISCONNECT."""
        build = self._to_worker.get(tuple(message[: self._head_size_worker]))
        return build(message) if build else self._unknown(message, "to a worker")

    def _unknown(self, message: Message, direction: str) -> NoReturn:
        if not message:
            raise RemoteViolation("the message has no frames")
        start = [frame[:8] for frame in message[: self._head_size_worker]]
        raise RemoteViolation(
            f"no command of MDP {self.version} {direction} starts with the frames {start}"
        )

    def encode(self, command: Command) -> Message:
        """Encode a command of this version; fields that it lacks are dropped."""
        kind = command.__class__
        write = self._encoders.get(kind)
        if write is None:
            raise LocalViolation(f"MDP {self.version} has no {_LACKING[kind]}")
        return write(command)

    def client_request(
        self,
        service: bytes,
        body: Sequence[bytes],
        request_id: int,
        timeout_ms: int,
        flags: int,
        key: bytes,
        call_id: bytes,
        principal: bytes = b"",
        trace: bytes = b"",
    ) -> Message:
        """Encode a `ClientRequest`; only `service` and `body` are sent."""
        return [*self._heads.client_request, service, *_nonempty(body)]

    def worker_final(
        self, address: bytes, body: Sequence[bytes], dispatch_id: int, status: int
    ) -> Message:
        """Encode a `WorkerFinal`; only `address` and `body` are sent."""
        return [*self._heads.worker_final, address, b"", *_nonempty(body)]

    def worker_request(
        self,
        address: bytes,
        body: list[bytes],
        dispatch_id: int,
        timeout_ms: int,
        attempt: int,
        key: bytes,
        call_id: bytes,
        principal: bytes = b"",
        trace: bytes = b"",
    ) -> Message:
        """Encode a `WorkerRequest`; only `address` and `body` are sent."""
        return [*self._heads.worker_request, address, b"", *_nonempty(body)]

    def client_final(
        self, service: bytes, body: list[bytes], request_id: int, status: int, attempts: int
    ) -> Message:
        """Encode a `ClientFinal`; only `service` and `body` are sent."""
        return [*self._heads.client_final, service, *_nonempty(body)]


# Commands that 0.1 and 0.2 lack, by their names in 0.3.
_LACKING: Final[dict[type, str]] = {
    ClientCancel: "CANCEL",
    ClientHeartbeat: "HEARTBEAT between client and broker",
    ClientPartial: "PARTIAL",
    WorkerPartial: "PARTIAL",
    Progress: "PROGRESS",
    DrainNotice: "DRAIN",
    WorkerCancel: "CANCEL",
}


# --- encoders of the frames after a head ----------------------------------------------------------
def _write_named(head: Head) -> _Write:
    """Encode a service name and a body."""
    return lambda command: [*head, command.service, *_nonempty(command.body)]


def _write_addressed(head: Head) -> _Write:
    """Encode a client address, the empty frame behind it, and a body."""
    return lambda command: [*head, command.address, b"", *_nonempty(command.body)]


def _nonempty(body: Sequence[bytes]) -> Sequence[bytes]:
    if not body:
        raise LocalViolation("a body must have at least one frame, which may be empty")
    return body


MDP_01: Final[Dialect] = RfcDialect(
    "0.1",
    Heads(
        client_request=(b"", b"MDPC01"),
        client_partial=None,
        client_final=(b"", b"MDPC01"),
        ready=(b"", b"MDPW01", b"\x01"),
        worker_request=(b"", b"MDPW01", b"\x02"),
        worker_partial=None,
        worker_final=(b"", b"MDPW01", b"\x03"),
        heartbeat=(b"", b"MDPW01", b"\x04"),
        disconnect=(b"", b"MDPW01", b"\x05"),
    ),
)

MDP_02: Final[Dialect] = RfcDialect(
    "0.2",
    Heads(
        client_request=(b"MDPC02", b"\x01"),
        client_partial=(b"MDPC02", b"\x02"),
        client_final=(b"MDPC02", b"\x03"),
        ready=(b"MDPW02", b"\x01"),
        worker_request=(b"MDPW02", b"\x02"),
        worker_partial=(b"MDPW02", b"\x03"),
        worker_final=(b"MDPW02", b"\x04"),
        heartbeat=(b"MDPW02", b"\x05"),
        disconnect=(b"MDPW02", b"\x06"),
    ),
)
