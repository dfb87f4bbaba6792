"""A message in the model of RabbitMQ, as it was published, with its content header and body.

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
class Letter(SimMessage):
    """A published message."""

    exchange: str = ""
    header: bytes = b""
    body: bytes = b""
    is_persistent: bool = False

    @property
    def properties(self) -> Properties | None:
        """Its properties; None if they are malformed."""
        try:
            return decode_properties(self.header)
        except RemoteViolation:
            return None

    def with_header(self, name: str, value: Any) -> Letter:
        """Add an entry to the headers; a letter with malformed properties stays as it is."""
        properties = self.properties
        if properties is None or properties.flaw:
            return self
        headers = {**properties.headers, name: value}
        header = encode_properties(properties._replace(headers=headers), len(self.body))
        return replace(self, header=header)


def letter_of(exchange: str, key: str, header: bytes, body: bytes, direct: str) -> Letter:
    """Return the letter of a publishing. RabbitMQ replaces the pseudo-queue of direct replies by
    `direct`, the consumer of the channel, and turns the expiration into a time to live."""
    letter = Letter(0, key, exchange=exchange, header=header, body=body)
    properties = letter.properties
    if properties is None:
        return letter
    if properties.reply_to == DIRECT_REPLY_TO and not properties.flaw:
        properties = properties._replace(reply_to=direct)
        header = encode_properties(properties, len(body))
    text = properties.expiration
    return replace(
        letter,
        reply_to=properties.reply_to,
        correlation_id=properties.correlation_id,
        expires_s=int(text) / 1000 if text.isascii() and text.isdecimal() else None,
        header=header,
        is_persistent=properties.persistent,
    )
