"""The methods of AMQP 0.9.1 that requite sends and decodes.

A message between engine and framing is `[channel, method]`, or `[channel, method, header, body]`
with content; in `[channel, method, header]` the body was larger than allowed and was dropped. An
empty message is a heartbeat. Channels are two bytes, methods and headers the payloads of their
frames.

Sources: AMQP 0.9.1, sections 1.4 to 1.8 of its reference; RabbitMQ's extensions `confirm.select`,
`basic.nack`, `basic.cancel` from the server, `connection.blocked`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from struct import Struct, error
from typing import Any, Final, NamedTuple

from requite.errors import RemoteViolation
from requite.protocols.amqp.fields import read_long, read_short, read_table, short, table

_U16: Final = Struct(">H")
_U32: Final = Struct(">I")
_U64: Final = Struct(">Q")
_ID: Final = Struct(">HH")
_TUNE: Final = Struct(">HIH")  # channel-max, frame-max, heartbeat
_COUNTS: Final = Struct(">II")
_NO_ARGUMENTS: Final = table({})
_EMPTY: Final = b"\0"  # an empty short string
_RESERVED: Final = b"\0\0"  # once the ticket of an access realm

CONNECTION: Final = b"\0\0"
"""Channel 0, for methods of the connection."""


def channel(number: int) -> bytes:
    """Encode a channel number."""
    return _U16.pack(number)


def _method(class_id: int, method_id: int) -> bytes:
    return _ID.pack(class_id, method_id)


CONNECTION_START: Final = _method(10, 10)
CONNECTION_START_OK: Final = _method(10, 11)
CONNECTION_TUNE: Final = _method(10, 30)
CONNECTION_TUNE_OK: Final = _method(10, 31)
CONNECTION_OPEN: Final = _method(10, 40)
CONNECTION_OPEN_OK: Final = _method(10, 41)
CONNECTION_CLOSE: Final = _method(10, 50)
CONNECTION_CLOSE_OK: Final = _method(10, 51)
CONNECTION_BLOCKED: Final = _method(10, 60)
CONNECTION_UNBLOCKED: Final = _method(10, 61)
CHANNEL_OPEN: Final = _method(20, 10)
CHANNEL_OPEN_OK: Final = _method(20, 11)
CHANNEL_CLOSE: Final = _method(20, 40)
CHANNEL_CLOSE_OK: Final = _method(20, 41)
EXCHANGE_DECLARE: Final = _method(40, 10)
EXCHANGE_DECLARE_OK: Final = _method(40, 11)
QUEUE_DECLARE: Final = _method(50, 10)
QUEUE_DECLARE_OK: Final = _method(50, 11)
QUEUE_BIND: Final = _method(50, 20)
QUEUE_BIND_OK: Final = _method(50, 21)
QUEUE_DELETE: Final = _method(50, 40)
QUEUE_DELETE_OK: Final = _method(50, 41)
QUEUE_UNBIND: Final = _method(50, 50)
QUEUE_UNBIND_OK: Final = _method(50, 51)
BASIC_QOS: Final = _method(60, 10)
BASIC_QOS_OK: Final = _method(60, 11)
BASIC_CONSUME: Final = _method(60, 20)
BASIC_CONSUME_OK: Final = _method(60, 21)
BASIC_CANCEL: Final = _method(60, 30)
BASIC_CANCEL_OK: Final = _method(60, 31)
BASIC_PUBLISH: Final = _method(60, 40)
BASIC_RETURN: Final = _method(60, 50)
BASIC_DELIVER: Final = _method(60, 60)
BASIC_GET: Final = _method(60, 70)
BASIC_GET_OK: Final = _method(60, 71)
BASIC_GET_EMPTY: Final = _method(60, 72)
BASIC_ACK: Final = _method(60, 80)
BASIC_REJECT: Final = _method(60, 90)
BASIC_NACK: Final = _method(60, 120)
CONFIRM_SELECT: Final = _method(85, 10)
CONFIRM_SELECT_OK: Final = _method(85, 11)

HAS_CONTENT: Final = frozenset({BASIC_PUBLISH, BASIC_RETURN, BASIC_DELIVER, BASIC_GET_OK})
"""The methods that are followed by a content header and a body."""


# --- out ------------------------------------------------------------------------------------------
OPEN_CHANNEL: Final = CHANNEL_OPEN + _EMPTY
SELECT_CONFIRMS: Final = CONFIRM_SELECT + b"\0"


def exchange_declare(
    name: str, kind: str, arguments: Mapping[str, Any] | None = None, *, passive: bool = False
) -> bytes:
    """Declare a durable exchange; `passive`: only check that it exists."""
    bits = bytes(((0b10, 0b11)[passive],))
    return EXCHANGE_DECLARE + _RESERVED + short(name) + short(kind) + bits + table(arguments or {})


def queue_declare(
    name: str,
    arguments: Mapping[str, Any] | None = None,
    *,
    passive: bool = False,
    durable: bool = False,
    exclusive: bool = False,
    auto_delete: bool = False,
) -> bytes:
    """Declare a queue; `passive`: only check that it exists."""
    bits = passive | durable << 1 | exclusive << 2 | auto_delete << 3
    return QUEUE_DECLARE + _RESERVED + short(name) + bytes((bits,)) + table(arguments or {})


def queue_bind(queue: str, exchange: str, routing_key: str) -> bytes:
    """Bind a queue to an exchange by a routing key."""
    names = short(queue) + short(exchange) + short(routing_key)
    return QUEUE_BIND + _RESERVED + names + b"\0" + _NO_ARGUMENTS


def queue_unbind(queue: str, exchange: str, routing_key: str) -> bytes:
    """Remove a binding; a missing one is no error."""
    names = short(queue) + short(exchange) + short(routing_key)
    return QUEUE_UNBIND + _RESERVED + names + _NO_ARGUMENTS


def queue_delete(queue: str) -> bytes:
    """Delete a queue and its messages, unconditionally: quorum queues support no conditions."""
    return QUEUE_DELETE + _RESERVED + short(queue) + b"\0"


def qos(prefetch: int) -> bytes:
    """Limit the unacknowledged deliveries of each consumer of the channel."""
    return BASIC_QOS + b"\0\0\0\0" + _U16.pack(prefetch) + b"\0"


def consume(queue: str, tag: str, *, no_ack: bool, exclusive: bool = False) -> bytes:
    """Consume from a queue; `exclusive`: fail if the queue has another consumer."""
    bits = bytes((no_ack << 1 | exclusive << 2,))
    return BASIC_CONSUME + _RESERVED + short(queue) + short(tag) + bits + _NO_ARGUMENTS


def cancel(tag: str) -> bytes:
    """Cancel a consumer."""
    return BASIC_CANCEL + short(tag) + b"\0"


def get(queue: str) -> bytes:
    """Get the oldest message of a queue; it must be acknowledged."""
    return BASIC_GET + _RESERVED + short(queue) + b"\0"


def publish(exchange: str, routing_key: str, *, mandatory: bool = False) -> bytes:
    """Publish the content that follows; `mandatory`: RabbitMQ returns it if no queue takes it."""
    bits = b"\x01" if mandatory else b"\0"
    return BASIC_PUBLISH + _RESERVED + short(exchange) + short(routing_key) + bits


def ack(tag: int) -> bytes:
    """Acknowledge a delivery."""
    return BASIC_ACK + _U64.pack(tag) + b"\0"


def reject(tag: int, *, requeue: bool) -> bytes:
    """Reject a delivery: requeue it, or dead-letter it."""
    return BASIC_REJECT + _U64.pack(tag) + (b"\x01" if requeue else b"\0")


def connection_close(code: int, text: str) -> bytes:
    """Close the connection."""
    return CONNECTION_CLOSE + _U16.pack(code) + short(text) + b"\0\0\0\0"


def channel_close(code: int, text: str) -> bytes:
    """Close a channel; RabbitMQ requeues its unacknowledged deliveries."""
    return CHANNEL_CLOSE + _U16.pack(code) + short(text) + b"\0\0\0\0"


def tune_ok(channels: int, frame_size: int, heartbeat_s: int) -> bytes:
    """Accept or lower the limits that the server proposes."""
    return CONNECTION_TUNE_OK + _TUNE.pack(channels, frame_size, heartbeat_s)


def connection_open(vhost: str) -> bytes:
    """Open a virtual host."""
    return CONNECTION_OPEN + short(vhost) + b"\0\0"


# --- in -------------------------------------------------------------------------------------------
class Started(NamedTuple):
    """connection.start, the first method of the server."""

    version: tuple[int, int]
    properties: Mapping[str, Any]
    mechanisms: Sequence[str]


class Tuned(NamedTuple):
    """Proposed or negotiated limits; 0 means no limit, or no heartbeats."""

    channels: int
    frame_size: int
    heartbeat_s: int


class Closed(NamedTuple):
    """The server closed a channel or the connection; `method` is the cause, if it names one."""

    code: int
    text: str
    method: bytes


class Blocked(NamedTuple):
    """The server accepts no publishing, because memory or disk space is low."""

    reason: str


class Declared(NamedTuple):
    """A queue exists."""

    queue: str
    messages: int
    consumers: int


class Consuming(NamedTuple):
    """A consumer is registered."""

    tag: str


class Cancelled(NamedTuple):
    """A consumer ended: its queue was deleted, or (`by_us`) we cancelled it."""

    tag: str
    by_us: bool


class Delivered(NamedTuple):
    """A message for a consumer."""

    consumer: str
    tag: int
    redelivered: bool
    exchange: str
    routing_key: str


class Got(NamedTuple):
    """The answer to basic.get; `more` messages were left in the queue."""

    tag: int
    redelivered: bool
    exchange: str
    routing_key: str
    more: int


class Returned(NamedTuple):
    """A mandatory message that RabbitMQ returned because no queue took it."""

    code: int
    text: str
    exchange: str
    routing_key: str


class Confirmed(NamedTuple):
    """A confirm for all publishings up to `tag` (`multiple`), or for that one."""

    tag: int
    multiple: bool
    is_taken: bool


class Done(NamedTuple):
    """An answer without further content, such as queue.bind-ok or basic.get-empty."""

    method: bytes


Heard = (
    Started
    | Tuned
    | Closed
    | Blocked
    | Declared
    | Consuming
    | Cancelled
    | Delivered
    | Got
    | Returned
    | Confirmed
    | Done
)


def decode(method: bytes) -> Heard:
    """Decode a method of the server.

    Raises `RemoteViolation` for a truncated method, and for one that a server does not send.
    """
    read = _READ.get(method[:4])
    if read is None:
        raise RemoteViolation(f"received the unknown method {method[:4].hex()}")
    try:
        return read(method)
    except (error, IndexError):
        raise RemoteViolation("received a truncated method") from None


def _started(data: bytes) -> Started:
    properties, at = read_table(data, 6)
    mechanisms, _ = read_long(data, at)
    return Started((data[4], data[5]), properties, mechanisms.decode(errors="replace").split())


def _tuned(data: bytes) -> Tuned:
    return Tuned(*_TUNE.unpack_from(data, 4))


def _closed(data: bytes) -> Closed:
    text, at = read_short(data, 6)
    return Closed(_U16.unpack_from(data, 4)[0], text, data[at : at + 4])


def _blocked(data: bytes) -> Blocked:
    return Blocked(read_short(data, 4)[0])


def _declared(data: bytes) -> Declared:
    queue, at = read_short(data, 4)
    return Declared(queue, *_COUNTS.unpack_from(data, at))


def _consuming(data: bytes) -> Consuming:
    return Consuming(read_short(data, 4)[0])


def _cancelled(data: bytes) -> Cancelled:
    return Cancelled(read_short(data, 4)[0], data[:4] == BASIC_CANCEL_OK)


def _delivered(data: bytes) -> Delivered:
    consumer, at = read_short(data, 4)
    tag = _U64.unpack_from(data, at)[0]
    exchange, after = read_short(data, at + 9)
    return Delivered(consumer, tag, data[at + 8] != 0, exchange, read_short(data, after)[0])


def _got(data: bytes) -> Got:
    exchange, at = read_short(data, 13)
    routing_key, at = read_short(data, at)
    more = _U32.unpack_from(data, at)[0]
    return Got(_U64.unpack_from(data, 4)[0], data[12] != 0, exchange, routing_key, more)


def _returned(data: bytes) -> Returned:
    text, at = read_short(data, 6)
    exchange, at = read_short(data, at)
    return Returned(_U16.unpack_from(data, 4)[0], text, exchange, read_short(data, at)[0])


def _confirmed(data: bytes) -> Confirmed:
    is_taken = data[:4] == BASIC_ACK
    return Confirmed(_U64.unpack_from(data, 4)[0], data[12] & 1 != 0, is_taken)


def _done(data: bytes) -> Done:
    return Done(data[:4])


_READ: Final[dict[bytes, Callable[[bytes], Heard]]] = {
    CONNECTION_START: _started,
    CONNECTION_TUNE: _tuned,
    CONNECTION_TUNE_OK: _tuned,
    CONNECTION_OPEN_OK: _done,
    CONNECTION_CLOSE: _closed,
    CONNECTION_CLOSE_OK: _done,
    CONNECTION_BLOCKED: _blocked,
    CONNECTION_UNBLOCKED: _done,
    CHANNEL_OPEN_OK: _done,
    CHANNEL_CLOSE: _closed,
    CHANNEL_CLOSE_OK: _done,
    EXCHANGE_DECLARE_OK: _done,
    QUEUE_DECLARE_OK: _declared,
    QUEUE_BIND_OK: _done,
    QUEUE_DELETE_OK: _done,
    QUEUE_UNBIND_OK: _done,
    BASIC_QOS_OK: _done,
    BASIC_CONSUME_OK: _consuming,
    BASIC_CANCEL: _cancelled,
    BASIC_CANCEL_OK: _cancelled,
    BASIC_DELIVER: _delivered,
    BASIC_GET_OK: _got,
    BASIC_GET_EMPTY: _done,
    BASIC_RETURN: _returned,
    BASIC_ACK: _confirmed,
    BASIC_NACK: _confirmed,
    CONFIRM_SELECT_OK: _done,
}
