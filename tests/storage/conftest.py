"""Logs on the disk and in memory that a test opens again and again."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from tests.storage.helpers import SMALL

from requite.storage import Log, LogSettings, MemoryFolder, MemoryLog

Opener = Callable[..., Log]


@pytest.fixture(params=["disk", "memory"])
def opened(request: pytest.FixtureRequest, tmp_path: Path) -> Opener:
    """Opens one and the same log each time."""
    folder = MemoryFolder()

    def open_log(settings: LogSettings = SMALL, purpose: bytes = b"TEST") -> Log:
        if request.param == "memory":
            return MemoryLog(purpose, settings, folder)
        return Log.open(tmp_path / "log", purpose=purpose, settings=settings)

    return open_log
