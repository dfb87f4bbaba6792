"""Deliveries, and the content headers of published messages."""

from __future__ import annotations

import re
from typing import Any, Final, NamedTuple
from uuid import uuid4

from requite.chronicle import CALL_ID_SIZE, NO_CALL
from requite.errors import RemoteViolation
from requite.pool.effects import Answer
from requite.protocols.amqp.channels import Content
from requite.protocols.amqp.properties import (
    Properties,
    altered_properties,
    decode_properties,
    encode_properties,
)
from requite.protocols.amqp.wire import (
    ACQUIRED_COUNT,
    ATTEMPT,
    CONTROL,
    DELIVERY_COUNT,
    FIRST_DEATH_REASON,
    KEY,
    STATUS,
    TRACEPARENT,
    WORKER_ID,
    Control,
)

_CALL_ID: Final = re.compile(rf"[0-9a-f]{{{2 * CALL_ID_SIZE}}}")
_EXPIRATION_MS_MAX: Final = 0xFFFF_FFFF
_DEATH: Final = ("x-death", "x-first-death-", "x-last-death-", "x-opt-")
_COUNTS: Final = (ACQUIRED_COUNT, ATTEMPT, DELIVERY_COUNT)


class Delivery(NamedTuple):
    """A received message; `header` is its content header, `properties` the decoded one."""

    tag: int
    key: str
    header: bytes
    properties: Properties
    body: bytes


def delivery_of(content: Content) -> Delivery:
    """Decode a message. Malformed properties are ignored: if they ended the connection, RabbitMQ
    would redeliver the message on the next one, without end."""
    heard, header, body = content
    try:
        properties = decode_properties(header)
    except RemoteViolation as violation:
        properties = Properties(flaw=str(violation))
    return Delivery(heard.tag, heard.routing_key, header, properties, body)


def remaining_s(delivery: Delivery) -> float | None:
    """Return the remaining time to live of a request; None without a valid one."""
    text = delivery.properties.expiration
    return int(text) / 1000 if text.isascii() and text.isdecimal() else None


def call_id_of(delivery: Delivery) -> bytes:
    """Return the call id of a request; `NO_CALL` if its client sends none."""
    text = delivery.properties.message_id
    return bytes.fromhex(text) if _CALL_ID.fullmatch(text) else NO_CALL


def forwarded(
    delivery: Delivery, expires_s: float | None, reason: str = "", attempts: int = 0
) -> bytes:
    """Return the content header of a republished message.

    Drops `user_id`, since RabbitMQ accepts only the publisher's, and `CC`, which would send another
    copy to each of its routes.
    """
    headers: dict[str, Any] = {}
    if reason:
        headers[FIRST_DEATH_REASON] = reason
    if attempts:
        headers[ATTEMPT] = attempts
    expiration = "" if expires_s is None else _milliseconds(expires_s)
    return altered_properties(delivery.header, expiration, _is_carbon_copy, headers)


def renewed(delivery: Delivery) -> bytes:
    """Return the content header of a retried poisoned request, without its delivery history."""
    return altered_properties(delivery.header, "", _is_history)


def _is_carbon_copy(name: str) -> bool:
    return name == "CC"


def _is_history(name: str) -> bool:
    return _is_carbon_copy(name) or name.startswith((*_DEATH, *_COUNTS))


def answer_header(answer: Answer) -> bytes:
    """Return the content header of an answer to a dead letter, which has no body."""
    headers: dict[str, Any] = {STATUS: answer.status, ATTEMPT: answer.attempt}
    if answer.traceparent:
        headers[TRACEPARENT] = answer.traceparent
    properties = Properties(answer.correlation_id or "", message_id=uuid4().hex, headers=headers)
    return encode_properties(properties, 0)


def drain_header(key: str | None, worker_id: str | None) -> bytes:
    """Return the content header of a control message that drains the workers of a group, one
    worker, or, if neither is given, all workers of the pool."""
    headers: dict[str, Any] = {CONTROL: Control.DRAIN.value}
    if key is not None:
        headers[KEY] = key
    if worker_id is not None:
        headers[WORKER_ID] = worker_id
    return encode_properties(Properties(headers=headers), 0)


def _milliseconds(seconds: float) -> str:
    return str(min(_EXPIRATION_MS_MAX, max(0, int(seconds * 1000))))
