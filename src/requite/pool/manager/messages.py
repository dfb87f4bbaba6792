"""The properties of what a manager publishes: messages handed on, and answers to dead letters."""

from __future__ import annotations

import re
from copy import copy
from typing import Any, Final
from uuid import uuid4

from aiormq.abc import DeliveredMessage
from pamqp.commands import Basic

from requite.chronicle import CALL_ID_SIZE, NO_CALL
from requite.pool.effects import Answer
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


def remaining_s(message: DeliveredMessage) -> float | None:
    """Return what a request has left of its time; None where it has no limit, or an odd one."""
    text = message.header.properties.expiration or ""
    return int(text) / 1000 if text.isascii() and text.isdecimal() else None


def call_id_of(message: DeliveredMessage) -> bytes:
    """Return the call that a request belongs to; `NO_CALL` where its client has no ids."""
    text = message.header.properties.message_id or ""
    return bytes.fromhex(text) if _CALL_ID.fullmatch(text) else NO_CALL


def forwarded(
    message: DeliveredMessage, expires_s: float | None, reason: str, attempts: int = 0
) -> Basic.Properties:
    """Return the properties under which a message is handed on.

    Without `user_id`, for RabbitMQ takes only that of who publishes, and without `CC`, which would
    send another copy to each of its other routes.
    """
    properties = copy(message.header.properties)
    headers: dict[str, Any] = dict(properties.headers or {})
    headers.pop("CC", None)
    if reason:
        headers[FIRST_DEATH_REASON] = reason
    if attempts:
        headers[ATTEMPT] = attempts
    properties.headers = headers
    properties.user_id = None
    properties.expiration = None if expires_s is None else _milliseconds(expires_s)
    return properties


def renewed(message: DeliveredMessage) -> Basic.Properties:
    """Return the properties under which a poisoned request is tried again, as if it were new."""
    properties = forwarded(message, None, "")
    headers = properties.headers or {}
    properties.headers = {
        name: value for name, value in headers.items() if not name.startswith((*_DEATH, *_COUNTS))
    }
    return properties


def answer_properties(answer: Answer) -> Basic.Properties:
    """Return the properties of an answer to a dead letter."""
    headers: dict[str, Any] = {STATUS: answer.status, ATTEMPT: answer.attempt}
    if answer.traceparent:
        headers[TRACEPARENT] = answer.traceparent
    return Basic.Properties(
        correlation_id=answer.correlation_id,
        headers=headers,
        message_id=uuid4().hex,
        delivery_mode=1,
    )


def drain_properties(key: str | None, worker_id: str | None) -> Basic.Properties:
    """Return the properties of a control message that drains workers: of a group, one of them, or,
    if neither is named, all of the pool."""
    headers: dict[str, Any] = {CONTROL: Control.DRAIN.value}
    if key is not None:
        headers[KEY] = key
    if worker_id is not None:
        headers[WORKER_ID] = worker_id
    return Basic.Properties(headers=headers, delivery_mode=1)


def _milliseconds(seconds: float) -> str:
    return str(min(_EXPIRATION_MS_MAX, max(0, int(seconds * 1000))))
