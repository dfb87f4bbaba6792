"""What may be set on callers and responders, with the reasons for the defaults."""

from __future__ import annotations

from dataclasses import dataclass, field
from math import ceil
from typing import Final

from requite.core.liveness import HeartbeatPolicy
from requite.errors import ConfigurationError
from requite.request import RetryPolicy

HEARTBEAT_DEFAULT: Final = HeartbeatPolicy(interval_s=10.0)
"""RabbitMQ's advice is a timeout of 5 to 20 seconds, which is two of these intervals."""

ATTEMPTS_DEFAULT: Final = 3
_SLOTS_MAX: Final = 1 << 24
PREFETCH_MAX: Final = 65_535
"""A prefetch count of AMQP has 16 bits."""


def heartbeat_to_announce_s(policy: HeartbeatPolicy) -> int:
    """Return the timeout that is announced to RabbitMQ, in its whole seconds: two intervals."""
    return max(1, ceil(2 * policy.interval_s))


@dataclass(frozen=True, slots=True)
class CallerPolicy:
    """What may be set on a caller; seconds and counts.

    - `slots`: how many calls may be outstanding at a time; more end with `Overloaded`.
    - `retry`: see `RetryPolicy`. There are no pauses between tries, and what a connection took with
      it is published again free of charge.
    - `heartbeat`: how often to be heard, and when a silent RabbitMQ is given up.
    - `confirms`: have RabbitMQ confirm each request; one that it does not take fails at once.
    - `direct_reply`: replies come by RabbitMQ's direct reply-to, without a queue.
    - `persistent`: have requests written to disk where their queue is.
    """

    slots: int = 1024
    retry: RetryPolicy = field(default_factory=lambda: RetryPolicy(attempts=ATTEMPTS_DEFAULT))
    heartbeat: HeartbeatPolicy = field(default_factory=lambda: HEARTBEAT_DEFAULT)
    confirms: bool = False
    direct_reply: bool = False
    persistent: bool = False

    def __post_init__(self) -> None:
        if not 1 <= self.slots <= _SLOTS_MAX:
            raise ConfigurationError(f"slots is 1 to {_SLOTS_MAX}, not {self.slots}")


@dataclass(frozen=True, slots=True)
class ResponderPolicy:
    """What may be set on a responder; seconds and counts.

    - `prefetch`: how many requests it may have in hand at a time.
    - `attempts_max`: at which delivery of a request it is given up (`delivery_limit`) rather than
      run; None: the limit of the queue itself, and whoever has its dead letters, see to that.
    - `heartbeat`: how often to be heard, and when a silent RabbitMQ is given up.
    - `retry_s`: how long to wait before a queue that is missing or refused is asked for again.
    - `cancels_max`: how many cancelled requests are remembered in case they are yet to come.
    """

    prefetch: int = 16
    attempts_max: int | None = ATTEMPTS_DEFAULT
    heartbeat: HeartbeatPolicy = field(default_factory=lambda: HEARTBEAT_DEFAULT)
    retry_s: float = 1.0
    cancels_max: int = 1024

    def __post_init__(self) -> None:
        if not 1 <= self.prefetch <= PREFETCH_MAX:
            raise ConfigurationError(f"capacity must be 1 to {PREFETCH_MAX}, not {self.prefetch}")
        if self.attempts_max is not None and self.attempts_max < 1:
            raise ConfigurationError(f"attempts must be at least 1, not {self.attempts_max}")
        if self.retry_s <= 0:
            raise ConfigurationError(f"retry_s must be positive, not {self.retry_s}")
