"""Requests that kill their workers: who is counted with them, and how much a look takes out."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from tests.pool.live import Floor, ask, eventually
from tests.pool.test_manager import who
from tests.support.amqp_connection import connected, header_of

from requite import Poisoned
from requite.pool.config import Limits, WorkersSection
from requite.pool.manager import poison

pytestmark = [pytest.mark.e2e, pytest.mark.slow]


async def outcomes(floor: Floor, prefetch: int, takes_s: float) -> list[Any]:
    """Ask for three things that are harmless, and one that kills; return what comes of each."""
    limits = Limits(delivery_limit=1)
    await floor.active(floor.config(limits=limits, workers=WorkersSection(prefetch=prefetch)))
    client = await floor.client()
    await who(client)  # from now on requests go to the queue, in order
    words = [*[b"sleep %g" % takes_s] * 3, b"die"]
    calls = [asyncio.ensure_future(client.call(word)) for word in words]
    return await asyncio.gather(*calls, return_exceptions=True)


async def test_of_requests_that_are_taken_singly_only_the_killer_is_given_up(floor: Floor) -> None:
    *others, killer = await outcomes(floor, prefetch=1, takes_s=0.5)
    assert isinstance(killer, Poisoned)
    assert [each.body.split()[-2:] for each in others] == [[b"sleep", b"0.5"]] * 3


async def test_requests_that_share_their_workers_with_a_killer_are_counted_with_it(
    floor: Floor,
) -> None:
    """RabbitMQ counts what was not acknowledged, and cannot know which request did it."""
    found = await outcomes(floor, prefetch=4, takes_s=20)
    assert [type(each) for each in found] == [Poisoned] * 4


# --- looks ----------------------------------------------------------------------------------------
async def fill(floor: Floor, bodies: list[bytes]) -> None:
    """Put requests of the key `42` into the poison queue."""
    async with connected(floor.rabbit.url) as connection:
        channel = await connection.channel(confirms=True)
        for number, body in enumerate(bodies):
            headers = {"x-first-death-queue": "core-req-42"}
            header = header_of(body, correlation_id=f"c{number}", headers=headers)
            assert await channel.publish("", "core-poison", header, body)


async def shown(url: str) -> tuple[list[str], int]:
    """Return the correlation ids of what a look shows, and how many more there are."""
    _, said = await ask(f"{url}/poison")
    return [each["correlation_id"] for each in said["poison"]], said["more"]


@pytest.mark.parametrize(("name", "bound"), [("_PEEK_MAX", 2), ("_PEEK_BYTES_MAX", 150)])
async def test_a_look_takes_the_oldest_and_no_more_than_it_may(
    floor: Floor, monkeypatch: pytest.MonkeyPatch, name: str, bound: int
) -> None:
    monkeypatch.setattr(poison, name, bound)
    manager = await floor.active()
    await fill(floor, [b"x" * 100] * 5)
    assert await shown(manager.url) == (["c0", "c1"], 3)
    looks = await asyncio.gather(*(shown(manager.url) for _ in range(3)))
    assert looks == [(["c0", "c1"], 3)] * 3  # one after the other, and nothing is lost
    assert (await ask(f"{manager.url}/poison/retry", {"all": True}))[1] == {"retried": 2}

    async def later() -> bool:
        return await shown(manager.url) == (["c2", "c3"], 1)

    await eventually(later, "those that were behind")
