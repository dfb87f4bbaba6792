"""AMQP 0.9.1 methods from the server's side: encode those of RabbitMQ, decode those of its clients.

A message is as in `requite.protocols.amqp.methods`: `[channel, method]`, with header and body for
methods that carry content.

Source: AMQP 0.9.1, sections 1.4 to 1.8 of its reference; RabbitMQ's extensions.
"""

from __future__ import annotations

from struct import Struct
from typing import Any, Final, NamedTuple

from requite.protocols.amqp import methods
from requite.protocols.amqp.fields import read_long, read_short, read_table, short, table

U16: Final = Struct(">H")
_U32: Final = Struct(">I")
_U64: Final = Struct(">Q")
_TUNE: Final = Struct(">HIH")
_LENGTH_SIZE: Final = 4

NAMES: Final = {
    value: name.lower().replace("_", ".", 1)
    for name, value in vars(methods).items()
    if isinstance(value, bytes) and len(value) == 4 and name.isupper()
}
"""The names of the methods, such as `queue.declare`."""


# --- methods of the server ------------------------------------------------------------------------
def start() -> bytes:
    """Encode `connection.start`, which begins the handshake."""
    mechanisms = b"PLAIN AMQPLAIN"
    hello = b"\0\x09" + table({"product": "RabbitMQ"}) + _U32.pack(len(mechanisms)) + mechanisms
    return methods.CONNECTION_START + hello + _U32.pack(5) + b"en_US"


def tune(frame_size: int, heartbeat_s: int) -> bytes:
    """Encode `connection.tune`, which proposes limits."""
    return methods.CONNECTION_TUNE + _TUNE.pack(2047, frame_size, heartbeat_s)


def close(of: bytes, code: int, text: str, cause: bytes = b"\0\0\0\0") -> bytes:
    """Encode `connection.close` or `channel.close` (`of`); `cause` is the method that failed."""
    return of + U16.pack(code) + short(text) + cause[:4]


def blocked(reason: str) -> bytes:
    """Encode `connection.blocked`: the client must stop publishing."""
    return methods.CONNECTION_BLOCKED + short(reason)


def channel_opened() -> bytes:
    """Encode the answer to `channel.open`."""
    return methods.CHANNEL_OPEN_OK + b"\0\0\0\0"


def declared(queue: str, messages: int, consumers: int) -> bytes:
    """Encode the answer to `queue.declare`."""
    return methods.QUEUE_DECLARE_OK + short(queue) + _U32.pack(messages) + _U32.pack(consumers)


def deleted(messages: int) -> bytes:
    """Encode the answer to `queue.delete`."""
    return methods.QUEUE_DELETE_OK + _U32.pack(messages)


def consuming(tag: str) -> bytes:
    """Encode the answer to `basic.consume`."""
    return methods.BASIC_CONSUME_OK + short(tag)


def cancelled(tag: str, *, by_us: bool) -> bytes:
    """Encode the end of a consumer: `basic.cancel` if its queue was deleted (`by_us`), else the
    answer to the client's cancel."""
    if by_us:
        return methods.BASIC_CANCEL + short(tag) + b"\x01"
    return methods.BASIC_CANCEL_OK + short(tag)


def deliver(consumer: str, tag: int, redelivered: bool, exchange: str, key: str) -> bytes:
    """Encode `basic.deliver`; header and body follow."""
    flags = b"\x01" if redelivered else b"\0"
    where = short(exchange) + short(key)
    return methods.BASIC_DELIVER + short(consumer) + _U64.pack(tag) + flags + where


def returned(exchange: str, key: str) -> bytes:
    """Encode `basic.return` with NO_ROUTE; header and body follow."""
    return methods.BASIC_RETURN + U16.pack(312) + short("NO_ROUTE") + short(exchange) + short(key)


def confirmed(tag: int, *, multiple: bool, is_taken: bool) -> bytes:
    """Encode a publisher confirm: an ack or a nack."""
    kind = methods.BASIC_ACK if is_taken else methods.BASIC_NACK
    return kind + _U64.pack(tag) + (b"\x01" if multiple else b"\0")


# --- methods of clients ---------------------------------------------------------------------------
class QueueDeclare(NamedTuple):
    """The fields of `queue.declare`."""

    queue: str
    passive: bool
    durable: bool
    exclusive: bool
    auto_delete: bool
    arguments: dict[str, Any]


class ExchangeDeclare(NamedTuple):
    """The fields of `exchange.declare`."""

    exchange: str
    kind: str
    passive: bool
    arguments: dict[str, Any]


class Publish(NamedTuple):
    """The fields of `basic.publish`."""

    exchange: str
    key: str
    mandatory: bool


class Consume(NamedTuple):
    """The fields of `basic.consume`."""

    queue: str
    tag: str
    no_ack: bool
    exclusive: bool


class Settle(NamedTuple):
    """The fields of `basic.ack` or `basic.reject`."""

    tag: int
    is_ack: bool
    requeue: bool


def read_queue_declare(method: bytes) -> QueueDeclare:
    """Decode `queue.declare`."""
    queue, at = read_short(method, 6)
    bits = method[at]
    arguments, _ = read_table(method, at + 1)
    passive, durable, exclusive, auto_delete = (bool(bits >> i & 1) for i in range(4))
    return QueueDeclare(queue, passive, durable, exclusive, auto_delete, arguments)


def read_exchange_declare(method: bytes) -> ExchangeDeclare:
    """Decode `exchange.declare`."""
    name, at = read_short(method, 6)
    kind, at = read_short(method, at)
    return ExchangeDeclare(name, kind, bool(method[at] & 1), read_table(method, at + 1)[0])


def read_bind(method: bytes) -> tuple[str, str, str]:
    """Decode `queue.bind` or `queue.unbind`: queue, exchange and routing key."""
    queue, at = read_short(method, 6)
    exchange, at = read_short(method, at)
    return queue, exchange, read_short(method, at)[0]


def read_queue_delete(method: bytes) -> str:
    """Decode the queue of `queue.delete`."""
    return read_short(method, 6)[0]


def read_publish(method: bytes) -> Publish:
    """Decode `basic.publish`."""
    exchange, at = read_short(method, 6)
    key, at = read_short(method, at)
    return Publish(exchange, key, bool(method[at] & 1))


def read_qos(method: bytes) -> int:
    """Decode the prefetch count of `basic.qos`."""
    return int(U16.unpack_from(method, 8)[0])


def read_consume(method: bytes) -> Consume:
    """Decode `basic.consume`."""
    queue, at = read_short(method, 6)
    tag, at = read_short(method, at)
    return Consume(queue, tag, bool(method[at] & 2), bool(method[at] & 4))


def read_cancel(method: bytes) -> str:
    """Decode the consumer tag of `basic.cancel`."""
    return read_short(method, 4)[0]


def read_settle(method: bytes) -> Settle:
    """Decode `basic.ack` or `basic.reject`."""
    is_ack = method[:4] == methods.BASIC_ACK
    return Settle(_U64.unpack_from(method, 4)[0], is_ack, not is_ack and bool(method[12] & 1))


def read_deliver(method: bytes) -> int:
    """Decode the delivery tag of `basic.deliver`."""
    _, at = read_short(method, 4)
    return int(_U64.unpack_from(method, at)[0])


def read_credentials(method: bytes) -> str:
    """Decode the user name of `connection.start-ok`."""
    _, at = read_table(method, 4)
    _, at = read_short(method, at)
    response, _ = read_long(method, at)
    return response.split(b"\0")[1].decode()


# --- bodies ---------------------------------------------------------------------------------------
def pack(frames: list[bytes]) -> bytes:
    """Join frames to one body. The concatenation of two bodies unpacks to the frames of both."""
    return b"".join(_U32.pack(len(frame)) + frame for frame in frames)


def unpack(body: bytes) -> list[bytes] | None:
    """Return the frames of a packed body; None for any other body."""
    frames = []
    at = 0
    while at < len(body):
        if at + _LENGTH_SIZE > len(body):
            return None
        end = at + _LENGTH_SIZE + _U32.unpack_from(body, at)[0]
        if end > len(body):
            return None
        frames.append(body[at + _LENGTH_SIZE : end])
        at = end
    return frames
