"""Requests that take longer than RabbitMQ waits for an acknowledgement (`consumer_timeout`)."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from typing import Final

import pytest
from tests.amqp.live import WAIT_S, is_consuming, serving, until
from tests.support.rabbit import Rabbit

from requite import AsyncClient, Poisoned, Request, service

pytestmark = pytest.mark.e2e
# RabbitMQ up to 4.2 closes the channel when it looks at it next, 4.3 ends the consumer.
_SHORT: Final = {
    "consumer_timeout": 1000,
    "channel_tick_interval": 300,
    "quorum_tick_interval": 300,
}


@pytest.fixture
def impatient(rabbit: Rabbit) -> Iterator[Rabbit]:
    """RabbitMQ with a short consumer_timeout, which a restart resets."""
    settings = [f"application:set_env(rabbit, {name}, {ms})" for name, ms in _SHORT.items()]
    rabbit.evaluate(", ".join(settings))
    try:
        yield rabbit
    finally:
        rabbit.restart()


@pytest.mark.slow
async def test_a_request_that_takes_too_long_is_given_up_and_others_are_served(
    impatient: Rabbit,
) -> None:
    begun: list[int] = []

    @service("slow")
    async def slow(request: Request) -> bytes:
        if request.body == b"for ever":
            begun.append(request.attempt)
            await asyncio.Event().wait()
        return request.body

    async with (
        serving(impatient.url, slow) as worker,
        AsyncClient(f"{impatient.url}?queue=slow", timeout=WAIT_S) as client,
    ):
        with pytest.raises(Poisoned):
            await client.call(b"for ever")
        assert begun == [1, 2, 3]
        await until(lambda: is_consuming(worker), "the worker consumes again")
        assert (await client.call(b"at once")).body == b"at once"
