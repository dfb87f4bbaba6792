"""Fixtures: both clients on each event loop, and a broker with a worker that they call."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from tests.e2e.serving import AsyncMethods, BlockingMethods, ClientMethods, Serving

Make = Callable[..., ClientMethods]
KINDS: dict[str, Callable[..., Any]] = {
    "blocking": BlockingMethods,
    "asyncio": lambda url, **more: AsyncMethods(url, asyncio.new_event_loop, **more),
    "uvloop": AsyncMethods,
}


@pytest.fixture(params=KINDS)
def make(request: pytest.FixtureRequest) -> Iterator[Make]:
    """A function that makes clients of one kind; they are closed after the test."""
    made: list[ClientMethods] = []

    def make(url: str, **settings: Any) -> ClientMethods:
        made.append(KINDS[request.param](url, **settings))
        return made[-1]

    yield make
    for client in made:
        client.close()


@pytest.fixture
def serving() -> Iterator[Serving]:
    serving = Serving()
    yield serving
    serving.close()


@pytest.fixture
def served(serving: Serving) -> Serving:
    serving.start_worker()
    return serving


@pytest.fixture
def echo(make: Make, served: Serving) -> ClientMethods:
    return make(served.url("echo"), timeout=10)
