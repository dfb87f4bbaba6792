"""The nouns of a responder: a request in a handler's hands, and what can be seen of its tables."""

from __future__ import annotations

from requite.core import jobs
from requite.protocols.amqp.properties import Properties


class Job(jobs.Job):
    """A request out of a queue.

    `tag` is the delivery, `attempt` which one of the request it is. `index` is the number of the
    partial reply that is next, `run` that of the run, once it has any. `flaw` tells why its reply
    cannot be had, whatever the handler says.
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
        """What a cancel knows the request by: message id and correlation id."""
        return self.properties.message_id, self.properties.correlation_id


class Why:
    """Why requests are not run: the words of counters and journals."""

    MALFORMED = "malformed"
    NO_REPLY_TO = "without reply-to"
    TOO_LARGE = "too large"
    CANCELLED = "cancelled before they began"
    POISONED = "delivered too often"
    DRAINING = "given back while draining"
    UNCOUNTED = "given back to be counted"
