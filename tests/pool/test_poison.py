"""Requests that kill their workers: which requests are poisoned, and how many a listing shows."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from tests.pool.live import RabbitTestbed, ask, eventually
from tests.pool.test_manager import answering_worker
from tests.support.amqp_connection import connected, header_of

from requite import Poisoned
from requite.pool.config import Limits, WorkersSection
from requite.pool.manager import poison

pytestmark = [pytest.mark.e2e, pytest.mark.slow]


async def outcomes(testbed: RabbitTestbed, prefetch: int, takes_s: float) -> list[Any]:
    """Send three harmless requests and one that kills its worker; return the result of each."""
    limits = Limits(delivery_limit=1)
    await testbed.active(testbed.config(limits=limits, workers=WorkersSection(prefetch=prefetch)))
    client = await testbed.client()
    await answering_worker(client)  # the queue is bound: requests are delivered in order
    words = [*[b"sleep %g" % takes_s] * 3, b"die"]
    calls = [asyncio.ensure_future(client.call(word)) for word in words]
    return await asyncio.gather(*calls, return_exceptions=True)


async def test_with_a_prefetch_of_1_only_the_fatal_request_is_poisoned(
    testbed: RabbitTestbed,
) -> None:
    *others, killer = await outcomes(testbed, prefetch=1, takes_s=0.5)
    assert isinstance(killer, Poisoned)
    assert [each.body.split()[-2:] for each in others] == [[b"sleep", b"0.5"]] * 3


async def test_requests_prefetched_with_a_fatal_one_are_poisoned_too(
    testbed: RabbitTestbed,
) -> None:
    """RabbitMQ counts all unacknowledged requests; it cannot know which one killed the worker."""
    found = await outcomes(testbed, prefetch=4, takes_s=20)
    assert [type(each) for each in found] == [Poisoned] * 4


# --- listing the poison queue ---------------------------------------------------------------------
async def fill(testbed: RabbitTestbed, bodies: list[bytes]) -> None:
    """Publish requests of the key `42` to the poison queue."""
    async with connected(testbed.rabbit.url) as connection:
        channel = await connection.channel(confirms=True)
        for number, body in enumerate(bodies):
            headers = {"x-first-death-queue": "core-req-42"}
            header = header_of(body, correlation_id=f"c{number}", headers=headers)
            assert await channel.publish("", "core-poison", header, body)


async def shown(url: str) -> tuple[list[str], int]:
    """List the poison queue; return the ids shown, and the number of further requests."""
    _, said = await ask(f"{url}/poison")
    return [each["correlation_id"] for each in said["poison"]], said["more"]


@pytest.mark.parametrize(("name", "bound"), [("_PEEK_MAX", 2), ("_PEEK_BYTES_MAX", 150)])
async def test_a_listing_shows_the_oldest_requests_up_to_its_limits(
    testbed: RabbitTestbed, monkeypatch: pytest.MonkeyPatch, name: str, bound: int
) -> None:
    monkeypatch.setattr(poison, name, bound)
    manager = await testbed.active()
    await fill(testbed, [b"x" * 100] * 5)
    assert await shown(manager.url) == (["c0", "c1"], 3)
    listings = await asyncio.gather(*(shown(manager.url) for _ in range(3)))
    assert listings == [(["c0", "c1"], 3)] * 3  # concurrent listings lose nothing
    assert (await ask(f"{manager.url}/poison/retry", {"all": True}))[1] == {"retried": 2}

    async def later() -> bool:
        return await shown(manager.url) == (["c2", "c3"], 1)

    await eventually(later, "the requests behind them")
