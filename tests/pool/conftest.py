"""Fixtures for what runs against RabbitMQ."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from pathlib import Path

import pytest
from tests.pool.live import Floor
from tests.support.rabbit import Rabbit


@pytest.fixture
async def floor(rabbit: Rabbit, tmp_path: Path) -> AsyncIterator[Floor]:
    """A RabbitMQ with a virtual host of its own, and room for managers and workers."""
    async with AsyncExitStack() as stack:
        floor = Floor(rabbit, tmp_path, stack)
        stack.push_async_callback(floor.clear)
        yield floor
