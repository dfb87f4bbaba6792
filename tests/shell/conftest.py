"""Fixtures of the tests of hosts."""

from __future__ import annotations

import pytest
from tests.shell.fakes import HostBench


@pytest.fixture
def bench() -> HostBench:
    """A host with a scripted engine, fake streams and a manual clock."""
    return HostBench()
