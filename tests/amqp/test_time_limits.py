"""Requests that exceed RabbitMQ's limit for acknowledgements, `consumer_timeout`."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from typing import Final

import pytest
from tests.amqp.live import WAIT_S, is_consuming, serving, until
from tests.support.rabbit import Rabbit

from requite import AsyncClient, Poisoned, Request, service

pytestmark = pytest.mark.e2e
# After the timeout, RabbitMQ up to 4.2 closes the channel at its next check; 4.3 cancels the
# consumer.
_SHORT: Final = {
    "consumer_timeout": 1000,
    "channel_tick_interval": 300,
    "quorum_tick_interval": 300,
}


@pytest.fixture
def strict_rabbit(rabbit: Rabbit) -> Iterator[Rabbit]:
    """RabbitMQ with a `consumer_timeout` of 1 s; it is restarted afterwards to reset the value."""
    settings = [f"application:set_env(rabbit, {name}, {ms})" for name, ms in _SHORT.items()]
    rabbit.evaluate(", ".join(settings))
    try:
        yield rabbit
    finally:
        rabbit.restart()


@pytest.mark.slow
async def test_a_request_over_the_limit_is_poisoned_and_others_are_served(
    strict_rabbit: Rabbit,
) -> None:
    begun: list[int] = []

    @service("slow")
    async def slow(request: Request) -> bytes:
        if request.body == b"for ever":
            begun.append(request.attempt)
            await asyncio.Event().wait()
        return request.body

    async with (
        serving(strict_rabbit.url, slow) as worker,
        AsyncClient(f"{strict_rabbit.url}?queue=slow", timeout=WAIT_S) as client,
    ):
        with pytest.raises(Poisoned):
            await client.call(b"for ever")
        assert begun == [1, 2, 3]
        await until(lambda: is_consuming(worker), "the worker consumes again")
        assert (await client.call(b"at once")).body == b"at once"
