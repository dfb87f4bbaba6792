"""A broker and services that remember what they were asked, for bulk calls."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from tests.spark.bulk.services import Recorded
from tests.support.live import broker, make_broker, processes, workers

__all__ = ["broker", "make_broker", "processes", "recorded", "workers"]


@pytest.fixture
def recorded() -> Iterator[Recorded]:
    """A broker with a worker whose services are those of `Recorded`."""
    recorded = Recorded()
    yield recorded
    recorded.close()
