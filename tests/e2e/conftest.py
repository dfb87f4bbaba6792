"""Brokers, sockets and processes for the tests from end to end."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest
from tests.e2e.stage import Stage
from tests.support.live import broker, make_broker, processes, sockets, workers

__all__ = ["broker", "make_broker", "processes", "sockets", "workers"]


@pytest.fixture
async def stage() -> AsyncIterator[Stage]:
    """A broker, and what a test puts upon it."""
    stage = Stage()
    async with stage.stack:
        await stage.open()
        yield stage
