"""What tests of the host share."""

from __future__ import annotations

import pytest
from tests.shell.fakes import HostBench


@pytest.fixture
def bench() -> HostBench:
    """A host with everything around it scripted."""
    return HostBench()
