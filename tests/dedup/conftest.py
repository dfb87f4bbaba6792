"""Fixtures of the engine's tests."""

from __future__ import annotations

import pytest
from tests.dedup.bench import Bench


@pytest.fixture
def bench() -> Bench:
    """A bench with entries in memory."""
    return Bench()


@pytest.fixture
def disk() -> Bench:
    """A bench whose log is under manual control."""
    return Bench(durable=True)
