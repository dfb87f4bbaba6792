"""Messages of the RabbitMQ model."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True, slots=True)
class SimMessage:
    """A message. `number`: the request that it carries, or is about; 0: none."""

    number: int
    key: str = ""
    reply_to: str | None = None
    correlation_id: str | None = None
    expires_s: float | None = None
    headers: Mapping[str, Any] = field(default_factory=dict)


@dataclass(slots=True, eq=False)
class Entry:
    """A message in a queue. `delivery_count`: its deliveries that ended without a settlement, or
    with a requeue."""

    message: SimMessage
    expires_at: float
    delivery_count: int = 0
