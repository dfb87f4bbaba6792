"""A message as its client published it, with content header and body.

Sources: AMQP 0.9.1, section 3.1.5; RabbitMQ's documentation of direct reply-to, time-to-live and
quorum queues (which count deliveries in a header).
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

from requite.errors import RemoteViolation
from requite.protocols.amqp.properties import Properties, decode_properties, encode_properties
from requite.protocols.amqp.topology import DIRECT_REPLY_TO
from requite.sim.rabbitmq.message import SimMessage


@dataclass(frozen=True, slots=True)
class PublishedMessage(SimMessage):
    """A published message."""

    exchange: str = ""
    header: bytes = b""
    body: bytes = b""
    is_persistent: bool = False

    @property
    def properties(self) -> Properties | None:
        """The properties; None if they are malformed."""
        try:
            return decode_properties(self.header)
        except RemoteViolation:
            return None

    def with_header(self, name: str, value: Any) -> PublishedMessage:
        """Return a copy with one more header; a message with malformed properties is returned
        unchanged."""
        properties = self.properties
        if properties is None or properties.flaw:
            return self
        headers = {**properties.headers, name: value}
        header = encode_properties(properties._replace(headers=headers), len(self.body))
        return replace(self, header=header)


def published_message(
    exchange: str, key: str, header: bytes, body: bytes, direct: str
) -> PublishedMessage:
    """Return a published message. As in RabbitMQ, `direct` (the consumer of the channel) replaces
    the pseudo-queue of direct replies in `reply-to`, and the expiration becomes a time to live."""
    published = PublishedMessage(0, key, exchange=exchange, header=header, body=body)
    properties = published.properties
    if properties is None:
        return published
    if properties.reply_to == DIRECT_REPLY_TO and not properties.flaw:
        properties = properties._replace(reply_to=direct)
        header = encode_properties(properties, len(body))
    text = properties.expiration
    return replace(
        published,
        reply_to=properties.reply_to,
        correlation_id=properties.correlation_id,
        expires_s=int(text) / 1000 if text.isascii() and text.isdecimal() else None,
        headers=properties.headers,
        header=header,
        is_persistent=properties.persistent,
    )
