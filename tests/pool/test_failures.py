"""The failure analysis of "Scalable async RPC" at a real RabbitMQ, as far as it is not shown where
managers are: workers that stall, that fail to parse, and queues that vanish under them."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import pytest
from tests.pool.live import Floor, ask, eventually
from tests.pool.test_manager import who

from requite import CallTimeout, Poisoned, RemoteFailure
from requite.pool.config import Limits

pytestmark = [pytest.mark.e2e, pytest.mark.slow]


@contextmanager
def impatience(floor: Floor) -> Iterator[None]:
    """Let RabbitMQ take a request back from a worker after a second, and look twice in it.

    Channels that are opened meanwhile have it so.
    """
    _set(floor, consumer_timeout=1_000, channel_tick_interval=500)
    try:
        yield
    finally:
        _set(floor, consumer_timeout=1_800_000, channel_tick_interval=60_000)


def _set(floor: Floor, **values: int) -> None:
    words = ", ".join(f"application:set_env(rabbit, {key}, {n})" for key, n in values.items())
    floor.rabbit._control("eval", f"{words}.")


@pytest.mark.timeout(240)
async def test_a_request_that_stalls_its_workers_is_taken_back_and_given_up(floor: Floor) -> None:
    with impatience(floor):
        manager = await floor.active(floor.config(limits=Limits(delivery_limit=1)))
        client = await floor.client(timeout=150.0)
        with pytest.raises(Poisoned):
            await client.call(b"sleep 1000")
    assert (await ask(f"{manager.url}/status"))[1]["dead_letters"]["by_reason"] == {
        "delivery_limit": 1
    }
    assert len(floor.workers()) == 1  # it has not ended


async def test_a_worker_that_cannot_read_a_request_says_so(floor: Floor) -> None:
    await floor.active()
    client = await floor.client()
    with pytest.raises(RemoteFailure, match="UnicodeDecodeError"):
        await client.call(b"\xff")
    assert await who(client)


async def test_a_queue_that_is_deleted_under_its_workers_is_made_again_for_them(
    floor: Floor,
) -> None:
    await floor.active()
    client = await floor.client()
    first = await who(client)
    floor.rabbit.delete_queue("core-req-42")

    async def served() -> bool:
        """Ask; what comes at the very moment of the deletion RabbitMQ may keep back."""
        try:
            return b"hi" in (await client.call(b"hi", timeout=3)).body
        except CallTimeout:
            return False

    await eventually(served, "requests that are served again")
    assert await who(client) == first  # the worker has lived on
