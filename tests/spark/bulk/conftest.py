"""Fixtures for bulk calls: brokers, workers, and services that record their requests."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from tests.spark.bulk.services import Recorded
from tests.support.live import broker, make_broker, processes, workers

__all__ = ["broker", "make_broker", "processes", "recorded", "workers"]


@pytest.fixture
def recorded() -> Iterator[Recorded]:
    """A running `Recorded`: a broker, and a worker that records its requests."""
    recorded = Recorded()
    yield recorded
    recorded.close()
