"""Fixtures of pool tests with RabbitMQ."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from pathlib import Path

import pytest
from tests.pool.live import RabbitTestbed
from tests.support.rabbit import Rabbit


@pytest.fixture
async def testbed(rabbit: Rabbit, tmp_path: Path) -> AsyncIterator[RabbitTestbed]:
    """A testbed at a RabbitMQ virtual host of its own; all workers are killed afterwards."""
    async with AsyncExitStack() as stack:
        testbed = RabbitTestbed(rabbit, tmp_path, stack)
        stack.push_async_callback(testbed.clear)
        yield testbed
