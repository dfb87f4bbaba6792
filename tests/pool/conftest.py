"""Fixtures of pool tests: RabbitMQ, a stub manager with a real HTTP server, and certificates."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from pathlib import Path

import pytest
from tests.pool.http_bench import Manager, endpoints_of, opened
from tests.pool.live import RabbitTestbed
from tests.support.certificates import Certificates
from tests.support.rabbit import Rabbit
from tests.tracing.conftest import make_spans, spans

from requite.pool.manager.endpoints import Endpoints

__all__ = ["make_spans", "spans"]


@pytest.fixture
async def testbed(rabbit: Rabbit, tmp_path: Path) -> AsyncIterator[RabbitTestbed]:
    """A testbed at a RabbitMQ virtual host of its own; all workers are killed afterwards."""
    async with AsyncExitStack() as stack:
        testbed = RabbitTestbed(rabbit, tmp_path, stack)
        stack.push_async_callback(testbed.clear)
        yield testbed


@pytest.fixture
def manager() -> Manager:
    """A stub manager whose server listens on a free port (`tests.pool.http_bench`)."""
    return Manager()


@pytest.fixture
async def endpoints(manager: Manager) -> AsyncIterator[Endpoints]:
    """The open HTTP server of the stub manager."""
    async with opened(endpoints_of(manager)) as endpoints:
        yield endpoints


@pytest.fixture(scope="module")
def certificates(tmp_path_factory: pytest.TempPathFactory) -> Certificates:
    """Certificates of an authority, a manager and a client."""
    return Certificates(tmp_path_factory.mktemp("certificates"))
