"""A request that a handler runs, and the reasons for not running one."""

from __future__ import annotations

from typing import Final

from requite.core import jobs
from requite.protocols.amqp.properties import Properties


class Job(jobs.Job):
    """A request from a queue.

    `tag` is the delivery tag, `attempt` the number of this delivery of the request. `index` is the
    number of the next partial reply; `run` numbers the run once it has one. `flaw` is the reason
    why the reply is replaced by an error.
    """

    __slots__ = ("attempt", "flaw", "index", "properties", "run", "tag")

    def __init__(self, tag: int, properties: Properties, attempt: int, call_id: bytes) -> None:
        self.tag = tag
        self.properties = properties
        self.attempt = attempt
        self.call_id = call_id
        self.index = self.run = 0
        self.abandoned = self.flaw = ""

    @property
    def name(self) -> tuple[str, str]:
        """Message id and correlation id, by which a cancel names the request."""
        return self.properties.message_id, self.properties.correlation_id


class Why:
    """Reasons for not running a request, as counters and journals have them."""

    MALFORMED: Final = "malformed"
    NO_REPLY_TO: Final = "without reply-to"
    TOO_LARGE: Final = "too large"
    CANCELLED: Final = "cancelled before they began"
    POISONED: Final = "delivered too often"
    DRAINING: Final = "requeued while draining"
    UNCOUNTED: Final = "requeued to be counted"
