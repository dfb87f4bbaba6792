"""RabbitMQ's maximum message size, learned from its errors: there is no method to query it.

RabbitMQ closes the channel of the first message that is too large, which affects all requests on
that channel. Its error states the limit, so later messages are refused locally.

Source: RabbitMQ, "Configuration", `max_message_size`: 128 MiB by default, 16 MiB from 4.0 on.
"""

from __future__ import annotations

import re
from math import inf
from typing import Final

from requite.protocols.amqp.methods import BASIC_PUBLISH, Closed

_LIMIT: Final = re.compile(r"larger than (?:configured )?max size (\d+)")
_PRECONDITION_FAILED: Final = 406  # AMQP 0.9.1, section 1.2


class SizeLimit:
    """The limit on one connection. `size_max` is in bytes of a body; `inf` until it is known."""

    def __init__(self) -> None:
        self.size_max: float = inf

    def forget(self) -> None:
        """Reset for a new connection, which may lead to another node."""
        self.size_max = inf

    def learn(self, closed: Closed) -> bool:
        """Learn the limit from the error of a closed channel; return whether it states one."""
        limit = _LIMIT.search(closed.text)
        cause = closed.code, closed.method
        if limit is None or cause != (_PRECONDITION_FAILED, BASIC_PUBLISH):
            return False
        self.size_max = float(limit[1])
        return True

    def refusal(self, what: str, size: int) -> str:
        """Return the error text for a message that is too large."""
        limit = f"{self.size_max:.0f} (max_message_size)"
        return f"{what} has {size} bytes; RabbitMQ accepts at most {limit}"
