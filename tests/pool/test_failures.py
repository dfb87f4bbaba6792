"""The failure analysis of "Scalable async RPC" at a real RabbitMQ: worker stalls and parse errors.

Also deleted queues. `test_manager` has the other failures.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import pytest
from tests.pool.live import RabbitTestbed, ask, eventually
from tests.pool.test_manager import answering_worker

from requite import CallTimeout, Poisoned, RemoteFailure
from requite.pool.config import Limits

pytestmark = [pytest.mark.e2e, pytest.mark.slow]


@contextmanager
def short_consumer_timeout(testbed: RabbitTestbed) -> Iterator[None]:
    """Set `consumer_timeout` of RabbitMQ to 1 s, checked every 0.5 s.

    The setting applies to channels that are opened within the block.
    """
    _set(testbed, consumer_timeout=1_000, channel_tick_interval=500)
    try:
        yield
    finally:
        _set(testbed, consumer_timeout=1_800_000, channel_tick_interval=60_000)


def _set(testbed: RabbitTestbed, **values: int) -> None:
    words = ", ".join(f"application:set_env(rabbit, {key}, {n})" for key, n in values.items())
    testbed.rabbit._control("eval", f"{words}.")


@pytest.mark.timeout(240)
async def test_a_request_that_stalls_its_workers_is_poisoned(testbed: RabbitTestbed) -> None:
    with short_consumer_timeout(testbed):
        manager = await testbed.active(testbed.config(limits=Limits(delivery_limit=1)))
        client = await testbed.client(timeout=150.0)
        with pytest.raises(Poisoned):
            await client.call(b"sleep 1000")
    assert (await ask(f"{manager.url}/status"))[1]["dead_letters"]["by_reason"] == {
        "delivery_limit": 1
    }
    assert len(testbed.workers()) == 1  # the worker is still running


async def test_a_handler_that_cannot_decode_a_request_fails_the_call(
    testbed: RabbitTestbed,
) -> None:
    await testbed.active()
    client = await testbed.client()
    with pytest.raises(RemoteFailure, match="UnicodeDecodeError"):
        await client.call(b"\xff")
    assert await answering_worker(client)


async def test_a_deleted_queue_is_declared_again_for_its_workers(
    testbed: RabbitTestbed,
) -> None:
    await testbed.active()
    client = await testbed.client()
    first = await answering_worker(client)
    testbed.rabbit.delete_queue("core-req-42")

    async def served() -> bool:
        """Return whether a call is answered.

        RabbitMQ may hold back a request that arrives during the deletion.
        """
        try:
            return b"hi" in (await client.call(b"hi", timeout=3)).body
        except CallTimeout:
            return False

    await eventually(served, "requests that are served again")
    assert await answering_worker(client) == first  # the worker kept running
