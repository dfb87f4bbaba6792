"""The RabbitMQ model reads and changes the header of a message."""

from __future__ import annotations

import pytest

from requite.protocols.amqp.properties import Properties, decode_properties, encode_properties
from requite.protocols.amqp.topology import DIRECT_REPLY_TO
from requite.sim.rabbitmq.published import PublishedMessage, published_message

BODY = b"body"


def publish(direct: str = "", **properties: object) -> PublishedMessage:
    """Return a published message with the given properties."""
    header = encode_properties(Properties("id-7", **properties), len(BODY))  # type: ignore[arg-type]
    return published_message("exchange", "key", header, BODY, direct)


def test_a_message_has_the_published_properties() -> None:
    published = publish(reply_to="replies", persistent=True)
    assert (published.exchange, published.key, published.body) == ("exchange", "key", BODY)
    assert published.properties == Properties("id-7", "replies", persistent=True)
    assert published.expires_s is None


@pytest.mark.parametrize(
    ("text", "seconds"), [("1500", 1.5), ("0", 0.0), ("soon", None), ("", None)]
)
def test_the_expiration_is_in_milliseconds(text: str, seconds: float | None) -> None:
    assert publish(expiration=text).expires_s == seconds


def test_the_pseudo_queue_of_direct_replies_becomes_the_consumer_of_the_channel() -> None:
    published = publish("consumer-3", reply_to=DIRECT_REPLY_TO)
    assert published.properties.reply_to == "consumer-3"
    assert decode_properties(published.header) == published.properties


def test_an_entry_is_added_to_the_headers() -> None:
    counted = publish(headers={"a": "b"}).with_header("x-delivery-count", 2)
    assert counted.properties.headers == {"a": "b", "x-delivery-count": 2}
    assert counted.body == BODY


def test_malformed_properties_stay_as_they_are() -> None:
    malformed = published_message("", "key", b"\0<garbage", BODY, "consumer-3")
    assert malformed.is_malformed
    assert malformed.with_header("x-delivery-count", 2) == malformed
    assert malformed.properties == Properties()
