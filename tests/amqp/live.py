"""Workers connected to a real RabbitMQ, and waits for their states."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

from tests.support.rabbit import Rabbit

from requite import Worker
from requite.protocols.amqp.responder import AmqpResponder

WAIT_S = 45.0
_PAUSE_S = 0.01


@asynccontextmanager
async def serving(url: str, *services: Any, **how: Any) -> AsyncIterator[Worker]:
    """Run a worker; yield it once it consumes its queues."""
    async with Worker(url, *services, **how) as worker:
        await until(lambda: is_consuming(worker), "the worker consumes")
        yield worker


def control_listeners(rabbit: Rabbit, exchange: str) -> int:
    """Return the number of workers bound to the control exchange.

    A worker may receive requests before it is bound.
    """
    return len(rabbit.api("GET", f"/exchanges/{rabbit.vhost}/{exchange}/bindings/source"))


def responders(worker: Worker) -> list[AmqpResponder]:
    """Return the AMQP engines of a worker."""
    engines = [plan.engine for plan in worker._plans]
    return [engine for engine in engines if isinstance(engine, AmqpResponder)]


def is_consuming(worker: Worker) -> bool:
    """Return whether the worker consumes all of its queues."""
    return all(engine.snapshot().is_consuming for engine in responders(worker))


async def until(condition: Callable[[], Any], what: str, within_s: float = WAIT_S) -> Any:
    """Return the first true result of `condition`; fail after `within_s` seconds."""
    end = asyncio.get_running_loop().time() + within_s
    while not (seen := condition()):
        assert asyncio.get_running_loop().time() < end, f"{what}: not within {within_s:g} s"
        await asyncio.sleep(_PAUSE_S)
    return seen
