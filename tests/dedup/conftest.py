"""Fixtures: engines on a test bench; a broker with workers and clients."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import pytest_asyncio
from tests.dedup.bench import Bench
from tests.dedup.cluster import Cluster

import requite

_TELLING = requite.BrokerPolicy(tell_old_clients=True)


@pytest.fixture
def bench() -> Bench:
    """A bench whose engine stores entries in memory."""
    return Bench()


@pytest.fixture
def disk() -> Bench:
    """A bench whose engine stores entries in a log."""
    return Bench(durable=True)


@pytest_asyncio.fixture
async def cluster() -> AsyncIterator[Cluster]:
    """A cluster whose broker replies to clients of MDP 0.1 and 0.2 if a request fails."""
    async with requite.Broker("tcp://127.0.0.1:0", policy=_TELLING) as broker:
        cluster = Cluster(broker)
        yield cluster
        await cluster.close()


@pytest.fixture(params=["memory", "log"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Path | None:
    """The folder of a store of replies; None for one in memory."""
    return tmp_path / "replies" if request.param == "log" else None
