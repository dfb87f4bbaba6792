"""A manager with a real RabbitMQ and real workers: groups come with requests, and go without."""

from __future__ import annotations

import pytest
from tests.pool.live import Floor

pytestmark = [pytest.mark.e2e, pytest.mark.slow]


async def test_the_first_request_of_a_key_starts_its_group(floor: Floor) -> None:
    await floor.active()
    client = await floor.client("a/b é")
    first = await client.call(b"hi")
    key, worker_id, word = first.body.decode().rsplit(" ", 2)
    assert (key, word) == ("a/b é", "hi")
    second = await client.call(b"again")
    assert second.body.decode().rsplit(" ", 2)[1] == worker_id
    assert [record.key for record in floor.workers()] == ["a/b é"]
