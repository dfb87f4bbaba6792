"""A manager's operations on queues share channels, and a refusal costs only its own."""

from __future__ import annotations

import asyncio

import pytest
from tests.pool.live import Floor

from requite.pool.manager.rabbit import Absent, Rabbit

pytestmark = [pytest.mark.e2e]


async def test_operations_use_a_channel_again(floor: Floor) -> None:
    rabbit = Rabbit(floor.config())
    await rabbit.open()
    for number in range(3):
        await rabbit.declare(str(number), {})
        await rabbit.bind(str(number))
    assert len(rabbit._idle) == 1
    await asyncio.gather(*(rabbit.count(str(number)) for number in range(3)))
    assert len(rabbit._idle) == 3
    await rabbit.close()


async def test_a_refusal_closes_its_channel_only(floor: Floor) -> None:
    rabbit = Rabbit(floor.config())
    await rabbit.open()
    await rabbit.declare("there", {})
    [kept] = rabbit._idle
    with pytest.raises(Absent):
        await rabbit.count("not there")
    assert kept.is_closed
    assert rabbit._idle == []
    assert await rabbit.count("there") == (0, 0)
    await rabbit.close()
