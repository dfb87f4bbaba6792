"""The driver that starts nothing passes what can be asked of it."""

from __future__ import annotations

import pytest
from tests.pool.drivers.conformance import CORE, DriverConformance

from requite.pool.drivers.base import Label
from requite.pool.drivers.noop import NoopDriver


class Nowhere:
    """Where nothing runs."""

    def driver(self, label: Label = CORE) -> NoopDriver:
        """Make a driver."""
        return NoopDriver()


@pytest.fixture
def house() -> Nowhere:
    return Nowhere()


class TestNoop(DriverConformance):
    """The whole suite, but for what asks for workers."""
