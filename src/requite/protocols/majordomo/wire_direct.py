"""MDP 0.3 between peers in one process: commands are messages as they are, and nothing is encoded.

A dialect for connections that hand objects over (`requite.framing.handover`). Bytes from elsewhere
never turn into it: what a framing makes of them are lists, and these are tuples.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from requite.chronicle import NO_CALL, NO_INSTANCE
from requite.protocols.majordomo.wire import (
    ClientCancel,
    ClientFinal,
    ClientHeartbeat,
    ClientPartial,
    ClientRequest,
    Dialect,
    Disconnect,
    DrainNotice,
    Progress,
    Ready,
    WorkerCancel,
    WorkerFinal,
    WorkerHeartbeat,
    WorkerPartial,
    WorkerRequest,
)

_new: Final = tuple.__new__  # half the price of calling a NamedTuple's class


def _as_it_is(message: Any) -> Any:
    return message


class Direct:
    """See `Dialect`. Engines say in it what they say in 0.3."""

    version: str = "0.3"
    has_ids: bool = True
    has_partials: bool = True

    decode_from_client = staticmethod(_as_it_is)
    decode_to_client = staticmethod(_as_it_is)
    decode_from_worker = staticmethod(_as_it_is)
    decode_to_worker = staticmethod(_as_it_is)

    # --- client and broker ---
    def client_request(
        self,
        service: bytes,
        body: Sequence[bytes],
        request_id: int,
        timeout_ms: int,
        flags: int,
        key: bytes,
        call_id: bytes = NO_CALL,
    ) -> Any:
        """A client's REQUEST."""
        fields = (service, list(body), request_id, timeout_ms, flags, key, call_id)
        return _new(ClientRequest, fields)

    def client_cancel(self, request_id: int) -> Any:
        """A client's CANCEL."""
        return ClientCancel(request_id)

    def client_heartbeat(self, interval_ms: int) -> Any:
        """A HEARTBEAT between client and broker."""
        return ClientHeartbeat(interval_ms)

    def client_partial(
        self, service: bytes, body: Sequence[bytes], request_id: int, index: int
    ) -> Any:
        """A PARTIAL for a client."""
        return ClientPartial(service, list(body), request_id, index)

    def client_final(
        self, service: bytes, body: Sequence[bytes], request_id: int, status: int, attempts: int
    ) -> Any:
        """A FINAL for a client."""
        return _new(ClientFinal, (service, list(body), request_id, status, attempts))

    # --- worker and broker ---
    def ready(
        self,
        service: bytes,
        capacity: int,
        interval_ms: int,
        lease_ms: int,
        instance: bytes = NO_INSTANCE,
    ) -> Any:
        """A worker's READY."""
        return Ready(service, capacity, interval_ms, lease_ms, instance)

    def worker_request(
        self,
        address: bytes,
        body: Sequence[bytes],
        dispatch_id: int,
        timeout_ms: int,
        attempt: int,
        key: bytes,
        call_id: bytes = NO_CALL,
    ) -> Any:
        """A REQUEST for a worker."""
        return _new(WorkerRequest, (address, body, dispatch_id, timeout_ms, attempt, key, call_id))

    def worker_partial(self, address: bytes, body: Sequence[bytes], dispatch_id: int) -> Any:
        """A worker's PARTIAL."""
        return WorkerPartial(address, list(body), dispatch_id)

    def worker_final(
        self, address: bytes, body: Sequence[bytes], dispatch_id: int, status: int
    ) -> Any:
        """A worker's FINAL."""
        return _new(WorkerFinal, (address, list(body), dispatch_id, status))

    def worker_heartbeat(self, interval_ms: int) -> Any:
        """A HEARTBEAT between worker and broker."""
        return WorkerHeartbeat(interval_ms)

    def disconnect(self) -> Any:
        """A DISCONNECT, in either direction."""
        return Disconnect()

    def progress(self, dispatch_id: int, extend_ms: int) -> Any:
        """A worker's PROGRESS."""
        return Progress(dispatch_id, extend_ms)

    def drain(self) -> Any:
        """A worker's DRAIN."""
        return DrainNotice()

    def worker_cancel(self, dispatch_id: int) -> Any:
        """A CANCEL for a worker."""
        return WorkerCancel(dispatch_id)


DIRECT: Final[Dialect] = Direct()
