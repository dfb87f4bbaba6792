"""Fixtures: clients of each kind, and a broker with a worker that they call."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from tests.e2e.serving import AsyncVerbs, BlockingVerbs, Serving, Verbs

Make = Callable[..., Verbs]
KINDS: dict[str, Callable[..., Any]] = {
    "blocking": BlockingVerbs,
    "asyncio": lambda url, **more: AsyncVerbs(url, asyncio.new_event_loop, **more),
    "uvloop": AsyncVerbs,
}


@pytest.fixture(params=KINDS)
def make(request: pytest.FixtureRequest) -> Iterator[Make]:
    """Makes clients of one kind, which are closed after the test."""
    made: list[Verbs] = []

    def make(url: str, **settings: Any) -> Verbs:
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
def echo(make: Make, served: Serving) -> Verbs:
    return make(served.url("echo"), timeout=10)
