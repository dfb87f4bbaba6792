"""Control messages to workers: which ones apply to a worker, and the cancels that it stores.

docs/protocols/amqp-rpc.md, "The responder".
"""

from __future__ import annotations

from typing import TypeAlias

from requite.engine import Drain
from requite.errors import RemoteViolation
from requite.protocols.amqp import wire
from requite.protocols.amqp.assignment import Assignment
from requite.protocols.amqp.properties import decode_properties
from requite.protocols.amqp.wire import Control

RequestName: TypeAlias = tuple[str, str]
"""Message id and correlation id: equal for all copies of a request."""


def read_control(
    header: bytes, exchange: str, assignment: Assignment
) -> RequestName | Drain | None:
    """Return the request that a control message cancels, or `Drain` if this worker is to drain.

    `exchange` is where the message was published. None for anything else, also for a drain that was
    published to another exchange than that of drains, such as one to which callers may write.
    Workers without a pool ignore drains.
    """
    try:
        properties = decode_properties(header)
    except RemoteViolation:
        return None
    headers = properties.headers
    match headers.get(wire.CONTROL):
        case Control.CANCEL:
            return properties.message_id, properties.correlation_id
        case Control.DRAIN if exchange and exchange == assignment.drain_exchange:
            applies = wire.concerns(headers, assignment.key, assignment.worker_id)
            return Drain() if applies else None
    return None


class Cancels:
    """Cancels whose requests, or copies of them, may arrive later (I15): the last `cancels_max`."""

    def __init__(self, cancels_max: int) -> None:
        self._max = cancels_max
        self._cancels: dict[RequestName, None] = {}

    def __len__(self) -> int:
        return len(self._cancels)

    def __contains__(self, name: RequestName) -> bool:
        return name in self._cancels

    def add(self, name: RequestName) -> None:
        """Store a cancel; drop the oldest if there are too many."""
        if name not in self._cancels and len(self._cancels) >= self._max:
            del self._cancels[next(iter(self._cancels))]
        self._cancels[name] = None
