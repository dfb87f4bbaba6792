"""The driver that starts nothing passes the part of the driver suite that needs no workers."""

from __future__ import annotations

import pytest
from tests.pool.drivers.conformance import CORE, DriverConformance

from requite.pool.drivers.base import Label
from requite.pool.drivers.noop import NoopDriver


class NoBackend:
    """A backend without workers."""

    def driver(self, label: Label = CORE) -> NoopDriver:
        """Return a driver; the label is ignored."""
        return NoopDriver()


@pytest.fixture
def backend() -> NoBackend:
    return NoBackend()


class TestNoop(DriverConformance):
    """The driver suite without the tests of workers."""
