"""Names and declarations of exchanges and queues.

A service without a pool is one durable queue with the service's name; requests reach it through the
default exchange. A pool has the exchanges and queues of "Scalable async RPC", section "Exchanges
and queues", and additionally an exchange for cancels, to which callers write, and one for drains,
to which only managers need permission to write.

Keys are arbitrary UTF-8. The routing key of a request is its key; queue names contain the key
percent-encoded (RFC 3986, section 2.1), so that they are readable and can be decoded.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple
from urllib.parse import quote, unquote

from requite.errors import ConfigurationError
from requite.value import Value

NAME_SIZE_MAX: Final = 255
"""Bytes of a name or routing key: a short string of AMQP (section 4.2.5.3)."""

CONTROL_EXCHANGE: Final = "requite-control-xchg"
"""The exchange for cancels of services without a pool: `direct`, routing key = queue."""

DIRECT_REPLY_TO: Final = "amq.rabbitmq.reply-to"
"""RabbitMQ's pseudo-queue for replies on the caller's own channel."""

REPLY_QUEUE_PREFIX: Final = "requite-reply-"
"""Prefix of callers' reply queues; a random part follows."""

SERVICE_QUEUE_ARGUMENTS: Final[Mapping[str, Any]] = {"x-queue-type": "quorum"}
"""Quorum queues count deliveries, so a request that kills its workers can be stopped."""

# Limits of buffered activity reports while no manager runs: a new manager inspects the pool itself.
_REPORTS_MAX: Final = 10_000
_REPORT_TTL_MS: Final = 60_000


class Exchange(NamedTuple):
    """An exchange to declare: durable, not auto-deleted."""

    name: str
    kind: str
    arguments: Mapping[str, Any]


class Destination(NamedTuple):
    """The exchange for a caller's requests; the routing key is the service: a queue name or a key.

    `exchange`: "" is the default exchange, which routes by queue name. `control_exchange` takes
    cancels, with the routing key of the request.
    """

    exchange: str = ""
    control_exchange: str = CONTROL_EXCHANGE

    def describe(self, routing_key: str) -> str:
        """Describe, for an error text, where an unroutable request was published."""
        if self.exchange:
            return f"exchange {self.exchange!r}, key {routing_key!r}"
        return f"there is no queue {routing_key!r}"


class Queue(NamedTuple):
    """A queue to declare: durable, not exclusive, not auto-deleted."""

    name: str
    arguments: Mapping[str, Any]


class Binding(NamedTuple):
    """A binding of a queue to an exchange."""

    exchange: str
    queue: str
    routing_key: str = ""


@dataclass(frozen=True, slots=True)
class RequestQueueLimits(Value):
    """Limits of a pool's request queues; None: no limit. Requests beyond them are dead-lettered.

    `delivery_limit`: redeliveries after lost workers (reason `delivery_limit`). `ttl_s`: seconds in
    the queue (`expired`). `length_max`: requests in the queue; the oldest is dropped (`maxlen`).
    """

    delivery_limit: int | None = 5
    ttl_s: float | None = None
    length_max: int | None = None


@dataclass(frozen=True, slots=True)
class Pool(Value):
    """The names of one pool. Raises `ConfigurationError` for an invalid name."""

    name: str
    _prefix: str = field(init=False, repr=False)

    def __post_init__(self) -> None:
        if not self.name:
            raise ConfigurationError("a pool needs a name (pool=NAME)")
        object.__setattr__(self, "_prefix", encode_key(self.name))
        _check_size(self.activity_exchange, "the name of the pool (pool=...)")

    @property
    def requests_exchange(self) -> str:
        """The exchange for requests; unroutable ones go to the orphan exchange."""
        return f"{self._prefix}-req-xchg"

    @property
    def orphan_exchange(self) -> str:
        """The alternate exchange of the requests exchange."""
        return f"{self._prefix}-orphan-xchg"

    @property
    def dead_letter_exchange(self) -> str:
        """The exchange for requests that expired, were rejected or reached a limit."""
        return f"{self._prefix}-dl-xchg"

    @property
    def activity_exchange(self) -> str:
        """The exchange for activity reports of workers."""
        return f"{self._prefix}-activity-xchg"

    @property
    def control_exchange(self) -> str:
        """The exchange for cancels, a fanout to every worker of the pool."""
        return f"{self._prefix}-control-xchg"

    @property
    def drain_exchange(self) -> str:
        """The exchange for drains, a fanout to every worker of the pool."""
        return f"{self._prefix}-drain-xchg"

    @property
    def orphan_queue(self) -> str:
        """The queue of requests for groups that have no queue yet."""
        return f"{self._prefix}-orphan"

    @property
    def dead_letter_queue(self) -> str:
        """The queue of dead-lettered requests, which the manager answers."""
        return f"{self._prefix}-dl"

    @property
    def activity_queue(self) -> str:
        """The queue of activity reports."""
        return f"{self._prefix}-activity"

    @property
    def poison_queue(self) -> str:
        """The queue of requests that reached the delivery limit: their workers were lost."""
        return f"{self._prefix}-poison"

    @property
    def destination(self) -> Destination:
        """The destination for callers."""
        return Destination(self.requests_exchange, self.control_exchange)

    def request_queue(self, key: str) -> str:
        """Return the name of a group's queue. Raises `ConfigurationError` for a key too long."""
        name = f"{self._prefix}-req-{encode_key(key)}"
        _check_size(name, f"the key {key[:20]!r}... (key=...), percent-encoded in {name[:30]!r}...")
        return name

    def key_of(self, queue: str) -> str | None:
        """Return the key of a request queue by its name; None for any other queue."""
        prefix = f"{self._prefix}-req-"
        if not queue.startswith(prefix):
            return None
        try:
            return unquote(queue[len(prefix) :], errors="strict")
        except UnicodeDecodeError:
            return None

    def exchanges(self) -> list[Exchange]:
        """Return the pool's exchanges, in the order of declaration."""
        return [
            Exchange(self.orphan_exchange, "fanout", {}),
            Exchange(self.dead_letter_exchange, "fanout", {}),
            Exchange(self.activity_exchange, "fanout", {}),
            Exchange(self.control_exchange, "fanout", {}),
            Exchange(self.drain_exchange, "fanout", {}),
            Exchange(
                self.requests_exchange, "direct", {"alternate-exchange": self.orphan_exchange}
            ),
        ]

    def queues(self) -> list[Queue]:
        """Return the pool's queues other than request queues.

        Orphans that expire are dead-lettered, so that their callers get an answer. The queue type
        is explicit because a virtual host may have another default: messages that a manager or a
        reader of the poison queue returns must not count against the delivery limit that RabbitMQ 4
        sets on every quorum queue. Activity reports expire.
        """
        classic = {"x-queue-type": "classic"}
        letters = {"x-dead-letter-exchange": self.dead_letter_exchange}
        bounds = {"x-max-length": _REPORTS_MAX, "x-message-ttl": _REPORT_TTL_MS}
        return [
            Queue(self.orphan_queue, {**classic, **letters}),
            Queue(self.dead_letter_queue, classic),
            Queue(self.activity_queue, {**classic, **bounds}),
            Queue(self.poison_queue, classic),
        ]

    def bindings(self) -> list[Binding]:
        """Return the bindings of these queues."""
        return [
            Binding(self.orphan_exchange, self.orphan_queue),
            Binding(self.dead_letter_exchange, self.dead_letter_queue),
            Binding(self.activity_exchange, self.activity_queue),
        ]

    def request_queue_to_declare(self, key: str, limits: RequestQueueLimits) -> Queue:
        """Return a group's queue: a quorum queue with dead-lettering.

        The dead-letter exchange is an argument of the queue, not a policy, so that another policy
        which matches the queue cannot displace it.
        """
        arguments: dict[str, Any] = {
            "x-queue-type": "quorum",
            "x-dead-letter-exchange": self.dead_letter_exchange,
        }
        if limits.delivery_limit is not None:
            arguments["x-delivery-limit"] = limits.delivery_limit
        if limits.ttl_s is not None:
            arguments["x-message-ttl"] = round(limits.ttl_s * 1000)
        if limits.length_max is not None:
            arguments["x-max-length"] = limits.length_max
        return Queue(self.request_queue(key), arguments)

    def request_binding(self, key: str) -> Binding:
        """Return the binding that routes requests with a key to the group's queue."""
        self.check_key(key)
        return Binding(self.requests_exchange, self.request_queue(key), key)

    def check_key(self, key: str) -> None:
        """Raise `ConfigurationError` for a key that is invalid for a group."""
        encode_key(key)
        _check_size(key, f"the key {key[:20]!r}... (key=...)")
        if "\0" in key:
            text = (
                f"the key {key[:20]!r} (key=...) contains a NUL, which a worker's environment"
                " cannot contain"
            )
            raise ConfigurationError(text)
        self.request_queue(key)


def encode_key(key: str) -> str:
    """Return a key as percent-encoded UTF-8, as in queue names."""
    try:
        return quote(key, safe="")
    except UnicodeEncodeError:
        raise ConfigurationError(f"the key {key!r} cannot be encoded as UTF-8") from None


def check_queue(name: str) -> None:
    """Raise `ConfigurationError` for a service name that is invalid as a queue name."""
    if not name:
        raise ConfigurationError(
            "the name of the queue is missing: add queue=NAME, or name a service"
        )
    if name.startswith("amq."):
        raise ConfigurationError(
            f"queue={name}: names that begin with amq. are reserved for RabbitMQ"
        )
    if "\r" in name or "\n" in name:
        raise ConfigurationError(f"queue={name!r}: RabbitMQ removes line breaks from names")
    encode_key(name)
    _check_size(name, "the name of the service (queue=...)")


def _check_size(text: str, what: str) -> None:
    size = len(text.encode())
    if size > NAME_SIZE_MAX:
        raise ConfigurationError(f"{what} has {size} bytes; the maximum in AMQP is {NAME_SIZE_MAX}")
