"""Context variables of handlers: each request has its own, and begins with those of the worker."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Iterator
from contextvars import ContextVar
from typing import Any

import pytest

from requite import Request, service
from requite.engine import Finished, Input, Produced
from requite.worker.runner import Runner

USER: ContextVar[bytes] = ContextVar("USER", default=b"nobody")
REQUESTS = 3


async def coroutine(_request: Request) -> bytes:
    before = USER.get()
    USER.set(b"somebody")
    return before


async def waiting(_request: Request) -> bytes:
    before = USER.get()
    USER.set(b"somebody")
    await asyncio.sleep(0)
    assert USER.get() == b"somebody"
    return before


async def failing(_request: Request) -> bytes:
    before = USER.get()
    USER.set(b"somebody")
    raise RuntimeError(before.decode())


async def async_generator(_request: Request) -> AsyncIterator[bytes]:
    before = USER.get()
    USER.set(b"somebody")
    yield before


def function(_request: Request) -> bytes:
    before = USER.get()
    USER.set(b"somebody")
    return before


def generator(_request: Request) -> Iterator[bytes]:
    before = USER.get()
    USER.set(b"somebody")
    yield before
    assert USER.get() == b"somebody"


async def seen(handler: Callable[[Request], Any], capacity: int = 1) -> list[bytes]:
    """Run a handler for several requests; return what each one replied first."""
    inputs: list[Input] = []
    ended = asyncio.Event()

    def take(event: Input) -> None:
        inputs.append(event)
        if sum(isinstance(each, Finished) for each in inputs) == REQUESTS:
            ended.set()

    runner = Runner(service("it")(handler), capacity, 1, 1000, 10, told=set())
    runner.submit = runner.submit_soon = take
    runner.deliver_all((token, Request("it", [b"hi"])) for token in range(REQUESTS))
    async with asyncio.timeout(10):
        await ended.wait()
    await runner.close()
    produced = [each.frames[0] for each in inputs if isinstance(each, Produced)]
    return produced or [each.frames[0] for each in inputs if isinstance(each, Finished)]


@pytest.mark.parametrize("capacity", [1, 2, 8])
@pytest.mark.parametrize("handler", [coroutine, waiting, async_generator, function, generator])
async def test_a_handler_does_not_see_what_an_earlier_one_has_set(
    handler: Callable[[Request], Any], capacity: int
) -> None:
    assert await seen(handler, capacity) == [b"nobody"] * REQUESTS
    assert USER.get() == b"nobody"


async def test_nor_what_a_handler_that_failed_has_set() -> None:
    assert await seen(failing) == [b"RuntimeError: nobody"] * REQUESTS


@pytest.mark.parametrize("handler", [coroutine, function])
async def test_handlers_see_what_was_set_before_the_worker_was_run(
    handler: Callable[[Request], Any],
) -> None:
    USER.set(b"the worker")
    assert await seen(handler) == [b"the worker"] * REQUESTS


async def test_a_value_that_cannot_be_compared_counts_as_changed() -> None:
    class Incomparable:
        def __eq__(self, _other: object) -> bool:
            raise ValueError("ambiguous")

        __hash__ = None  # type: ignore[assignment]

    value: ContextVar[Any] = ContextVar("value")
    value.set(Incomparable())

    async def handler(_request: Request) -> bytes:
        value.set(Incomparable())
        return b"ok"

    assert await seen(handler) == [b"ok"] * REQUESTS


@pytest.mark.parametrize(("changes", "tasks"), [(False, 1), (True, REQUESTS)])
async def test_only_a_handler_that_changes_its_context_costs_a_task(
    changes: bool, tasks: int
) -> None:
    used = set()

    async def handler(_request: Request) -> bytes:
        used.add(asyncio.current_task())
        token = USER.set(b"somebody")
        if not changes:
            USER.reset(token)
        return b""

    await seen(handler)
    assert len(used) == tasks
