"""A manager's queue operations share channels; a refusal closes one channel only."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime

import pytest
from tests.pool.live import RabbitTestbed
from tests.support.amqp_connection import header_of

from requite.pool.manager.messages import Delivery, forwarded
from requite.pool.manager.rabbit import QueueNotFound, Rabbit
from requite.protocols.amqp import methods

pytestmark = [pytest.mark.e2e]


async def test_operations_reuse_channels(testbed: RabbitTestbed) -> None:
    rabbit = Rabbit(testbed.config())
    await rabbit.open()
    for number in range(3):
        await rabbit.declare(str(number), {})
        await rabbit.bind(str(number))
    assert len(rabbit._idle) == 1
    await asyncio.gather(*(rabbit.count(str(number)) for number in range(3)))
    assert len(rabbit._idle) == 3
    await rabbit.close()


async def test_a_refusal_closes_only_its_channel(testbed: RabbitTestbed) -> None:
    rabbit = Rabbit(testbed.config())
    await rabbit.open()
    await rabbit.declare("there", {})
    [kept] = rabbit._idle
    with pytest.raises(QueueNotFound):
        await rabbit.count("not there")
    assert kept.is_closed
    assert rabbit._idle == []
    assert await rabbit.count("there") == (0, 0)
    await rabbit.close()


async def test_publish_reports_whether_a_queue_took_the_message(testbed: RabbitTestbed) -> None:
    rabbit = Rabbit(testbed.config())
    await rabbit.open()
    await rabbit.declare("there", {})
    header = header_of(b"hi", content_type="text/plain", headers={"a": 1.5, "b": [True]})
    places = ["core-req-there", "core-req-nowhere"] * 20
    taken = await asyncio.gather(*(rabbit.publish("", place, header, b"hi") for place in places))
    assert taken == [True, False] * 20
    assert await rabbit.count("there") == (20, 0)
    await rabbit.close()


async def test_an_orphan_is_forwarded_unchanged(testbed: RabbitTestbed) -> None:
    """An orphan with bytes that are not UTF-8 and all kinds of header fields stays unchanged."""
    rabbit = Rabbit(testbed.config())
    await rabbit.open()
    came: asyncio.Queue[Delivery] = asyncio.Queue()
    assert await rabbit.take_over(came.put_nowait, came.put_nowait, came.put_nowait)
    header = header_of(
        b"hi",
        content_type="text/plain",
        correlation_id="ID",
        priority=3,
        headers={"a": 1.5, "b": [True], "c": datetime(2020, 1, 1, tzinfo=UTC)},
        message_type="t",
        app_id="me",
    ).replace(b"\x02ID", b"\x02\xff\xfe")
    assert await rabbit.publish("core-req-xchg", "there", header, b"hi")
    delivery = await came.get()
    assert delivery.header == header
    await rabbit.declare("there", {})
    await rabbit.bind("there")
    assert await rabbit.publish(
        "core-req-xchg", delivery.key, forwarded(delivery, None), delivery.body
    )
    async with rabbit.own_channel() as channel:
        got = await channel.ask(methods.get("core-req-there"))
        assert (got.header, got.body) == (header, b"hi")
    await rabbit.close()
