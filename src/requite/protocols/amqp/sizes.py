"""How large a message RabbitMQ takes, which nobody can ask: it closes the channel of a larger one.

The first such message costs its channel, and what was under way on it. RabbitMQ says its limit
then, so that those that follow are refused here, and harm nobody else's.

Source: RabbitMQ, "Configuration", `max_message_size`: 128 MiB, and 16 MiB from 4.0 on, unless
somebody has set another one.
"""

from __future__ import annotations

import re
from math import inf
from typing import Final

from requite.protocols.amqp.methods import BASIC_PUBLISH, Closed

_TOLD: Final = re.compile(r"larger than (?:configured )?max size (\d+)")
_PRECONDITION_FAILED: Final = 406  # AMQP 0.9.1, section 1.2


class SizeLimit:
    """What is known of it on one connection. `size_max` counts the bytes of a body."""

    def __init__(self) -> None:
        self.size_max = inf

    def forget(self) -> None:
        """Know nothing: the connection is another one, perhaps to another node."""
        self.size_max = inf

    def learn(self, closed: Closed) -> bool:
        """Take in why a channel was closed; return whether it was for the size of a message."""
        told = _TOLD.search(closed.text)
        cause = closed.code, closed.method
        if told is None or cause != (_PRECONDITION_FAILED, BASIC_PUBLISH):
            return False
        self.size_max = int(told[1])
        return True

    def refusal(self, what: str, size: int) -> str:
        """Return the sentence for a message that is too large."""
        return f"RabbitMQ takes {self.size_max} bytes (max_message_size), and {what} has {size}"
