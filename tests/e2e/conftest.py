"""Fixtures of the end-to-end tests: brokers, workers, sockets and processes."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest
from tests.e2e.cluster import Cluster
from tests.support.live import broker, make_broker, processes, sockets, workers

__all__ = ["broker", "make_broker", "processes", "sockets", "workers"]


@pytest.fixture
async def cluster() -> AsyncIterator[Cluster]:
    """A broker in this event loop, to which the test adds workers and clients."""
    cluster = Cluster()
    async with cluster.stack:
        await cluster.open()
        yield cluster
