"""Workers at a real RabbitMQ, and waiting for their states."""

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
    """A worker that consumes."""
    async with Worker(url, *services, **how) as worker:
        await until(lambda: is_consuming(worker), "the worker consumes")
        yield worker


def hearing(rabbit: Rabbit, exchange: str) -> int:
    """Return how many workers hear control messages: a request may come to one before that."""
    return len(rabbit.api("GET", f"/exchanges/{rabbit.vhost}/{exchange}/bindings/source"))


def responders(worker: Worker) -> list[AmqpResponder]:
    """Return the engines of a worker."""
    engines = [plan.engine for plan in worker._plans]
    return [engine for engine in engines if isinstance(engine, AmqpResponder)]


def is_consuming(worker: Worker) -> bool:
    """Whether each queue of a worker is consumed."""
    return all(engine.snapshot().is_consuming for engine in responders(worker))


async def until(look: Callable[[], Any], what: str, within_s: float = WAIT_S) -> Any:
    """Return what `look` returns as soon as that is true; fail when it never is."""
    end = asyncio.get_running_loop().time() + within_s
    while not (seen := look()):
        assert asyncio.get_running_loop().time() < end, f"{what}: not within {within_s:g} s"
        await asyncio.sleep(_PAUSE_S)
    return seen
