"""The limits of a gateway."""

from __future__ import annotations

from dataclasses import dataclass
from math import inf
from typing import Final

from requite.errors import ConfigurationError

KEPT_FOR_DESCRIPTIONS: Final = 16
"""Slots of the client beyond those of calls, by which the gateway asks for descriptions."""


@dataclass(frozen=True, slots=True)
class GatewayPolicy:
    """Limits. Requests beyond them are answered with 413 or 503, and have not run.

    - `body_size_max`: bytes of a body; of all bodies held at a time, `bodies_size_max`.
    - `concurrency`: calls in progress, with streams.
    - `timeout`, `timeout_max`: seconds for a call without `X-Request-Timeout`, and the most that
      this field may ask for.
    - `stream_size_max`: bytes of partial replies that wait for a client which reads slowly; beyond
      it the call is cancelled.
    """

    body_size_max: int = 1 << 20
    bodies_size_max: int = 256 << 20
    concurrency: int = 1024
    timeout: float = 30.0
    timeout_max: float = 300.0
    stream_size_max: int = 256 << 10

    def __post_init__(self) -> None:
        amounts = (self.body_size_max, self.bodies_size_max, self.concurrency, self.stream_size_max)
        if min(amounts) < 1:
            raise ConfigurationError("the limits of a gateway must be at least 1")
        if not 0 < self.timeout <= self.timeout_max < inf:
            raise ConfigurationError(
                "the timeout of a gateway must be positive, and at most its maximum, which is"
                f" finite; not {self.timeout:g} of {self.timeout_max:g} s"
            )
