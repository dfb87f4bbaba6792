"""Fixtures: engines on a test bench."""

from __future__ import annotations

import pytest
from tests.dedup.bench import Bench


@pytest.fixture
def bench() -> Bench:
    """A bench whose engine stores entries in memory."""
    return Bench()


@pytest.fixture
def disk() -> Bench:
    """A bench whose engine stores entries in a log."""
    return Bench(durable=True)
