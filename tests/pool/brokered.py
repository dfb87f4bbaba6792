"""Pool managers and workers connected to an MDP broker."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AsyncExitStack
from pathlib import Path

from tests.pool.live import WAIT_S, PoolTestbed
from tests.support.live import ANY_PORT, BrokerProcess

from requite import AsyncClient, Broker
from requite.pool.config import (
    BrokerSection,
)
from requite.protocols.majordomo.policy import BrokerPolicy


class BrokerTestbed(PoolTestbed):
    """A testbed whose managers connect to an MDP broker."""

    def __init__(self, url: str, folder: Path, stack: AsyncExitStack) -> None:
        section = BrokerSection(url, interval_s=0.05, settle_s=0.5)
        super().__init__(url, {"broker": section}, folder, stack)


async def start_broker(stack: AsyncExitStack) -> str:
    """Start a broker in this event loop; return its URL.

    It holds requests for `WAIT_S` without a worker, since a busy machine starts workers slowly.
    """
    broker = Broker(ANY_PORT, policy=BrokerPolicy(service_grace_s=WAIT_S, attempts_max=2))
    await stack.enter_async_context(broker)
    return broker.endpoints[0].replace("tcp://", "mdp://")


def broker_process(bind: str = ANY_PORT, options: Sequence[str] = ()) -> BrokerProcess:
    """Start a broker in a child process that can be killed."""
    return BrokerProcess("--service-grace", str(WAIT_S), *options, bind=bind)


async def answering_worker(client: AsyncClient, word: bytes = b"hi") -> str:
    """Return the id of the worker that answers."""
    reply = await client.call(word)
    return reply.body.removesuffix(b" " + word).decode().rsplit(" ", 1)[1]
