"""Settings of callers and responders."""

from __future__ import annotations

from dataclasses import dataclass, field
from math import ceil
from typing import Final

from requite.core.liveness import HeartbeatPolicy
from requite.errors import ConfigurationError
from requite.request import RetryPolicy
from requite.value import Value

HEARTBEAT_DEFAULT: Final = HeartbeatPolicy(interval_s=10.0)
"""RabbitMQ's advice is a timeout of 5 to 20 seconds, which is two of these intervals."""

ATTEMPTS_DEFAULT: Final = 3
_SLOTS_MAX: Final = 1 << 24
PREFETCH_MAX: Final = 65_535
"""A prefetch count of AMQP has 16 bits."""


def heartbeat_to_announce_s(policy: HeartbeatPolicy) -> int:
    """Return the timeout to negotiate with RabbitMQ: two intervals, in whole seconds."""
    return max(1, ceil(2 * policy.interval_s))


@dataclass(frozen=True, slots=True)
class CallerPolicy(Value):
    """Settings of a caller.

    - `slots`: the maximum of outstanding calls; further calls fail with `Overloaded`.
    - `retry`: see `RetryPolicy`. There are no pauses between attempts, and attempts after a lost
      connection do not count against the budget.
    - `heartbeat`: the interval, and when a silent RabbitMQ counts as dead.
    - `confirms`: use publisher confirms; a request that RabbitMQ refuses then fails at once.
    - `direct_reply`: receive replies by RabbitMQ's direct reply-to, without a queue.
    - `persistent`: publish requests as persistent messages.
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
class ResponderPolicy(Value):
    """Settings of a responder.

    - `prefetch`: the maximum of unacknowledged requests.
    - `attempts_max`: how many deliveries of a request are run; a later one is answered with
      `delivery_limit`. None: the delivery limit and dead-lettering of the queue apply.
    - `heartbeat`: the interval, and when a silent RabbitMQ counts as dead.
    - `retry_s`: seconds before it checks again for a queue that is missing or refused.
    - `cancels_max`: how many cancels are remembered for requests that have not arrived yet.
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
