"""Messages of the model of RabbitMQ."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True, slots=True)
class SimMessage:
    """A message: `number` of the request that it is, or is about; 0: none."""

    number: int
    key: str = ""
    reply_to: str | None = None
    correlation_id: str | None = None
    expires_s: float | None = None
    headers: Mapping[str, Any] = field(default_factory=dict)


@dataclass(slots=True, eq=False)
class Entry:
    """A message in a queue, and how often it was delivered in vain."""

    message: SimMessage
    expires_at: float
    returns: int = 0
