"""A message as its client published it, with content header and body.

Sources: AMQP 0.9.1, section 3.1.5; RabbitMQ's documentation of direct reply-to, time-to-live and
quorum queues (which count deliveries in a header).
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, Final

from requite.errors import RemoteViolation
from requite.protocols.amqp.properties import Properties, decode_properties, encode_properties
from requite.protocols.amqp.topology import DIRECT_REPLY_TO

_NO_PROPERTIES: Final = Properties()


@dataclass(frozen=True, slots=True)
class PublishedMessage:
    """A published message. `properties`: those of its header; of a malformed header, none, and
    `is_malformed`. `number`: the request that it carries, or is about; 0: none."""

    exchange: str
    key: str
    header: bytes
    body: bytes
    properties: Properties = _NO_PROPERTIES
    is_malformed: bool = False
    number: int = 0

    @property
    def expires_s(self) -> float | None:
        """The time to live; None: unlimited."""
        text = self.properties.expiration
        return int(text) / 1000 if text.isascii() and text.isdecimal() else None

    def with_properties(self, properties: Properties) -> PublishedMessage:
        """Return a copy with other properties; a message with malformed properties is returned
        unchanged."""
        if self.is_malformed or self.properties.flaw:
            return self
        header = encode_properties(properties, len(self.body))
        return replace(self, properties=properties, header=header)

    def with_header(self, name: str, value: Any) -> PublishedMessage:
        """Return a copy with one more header; a message with malformed properties is returned
        unchanged."""
        headers = {**self.properties.headers, name: value}
        return self.with_properties(self.properties._replace(headers=headers))


def published_message(
    exchange: str, key: str, header: bytes, body: bytes, direct: str, number: int = 0
) -> PublishedMessage:
    """Return a published message. As in RabbitMQ, `direct` (the consumer of the channel) replaces
    the pseudo-queue of direct replies in `reply-to`."""
    try:
        properties = decode_properties(header)
    except RemoteViolation:
        return PublishedMessage(exchange, key, header, body, is_malformed=True, number=number)
    published = PublishedMessage(exchange, key, header, body, properties, number=number)
    if properties.reply_to == DIRECT_REPLY_TO:
        return published.with_properties(properties._replace(reply_to=direct))
    return published
