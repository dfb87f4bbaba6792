"""What tests of the engine share."""

from __future__ import annotations

import pytest
from tests.dedup.bench import Bench


@pytest.fixture
def bench() -> Bench:
    """One that keeps its entries in memory."""
    return Bench()


@pytest.fixture
def disk() -> Bench:
    """One whose log obeys by hand."""
    return Bench(durable=True)
