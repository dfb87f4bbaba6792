"""A fixture that opens a log, on disk and in memory."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from tests.storage.helpers import SMALL

from requite.storage import Log, LogSettings, MemoryFolder, MemoryLog

Opener = Callable[..., Log]


@pytest.fixture(params=["disk", "memory"])
def opened(request: pytest.FixtureRequest, tmp_path: Path) -> Opener:
    """Return a function that opens the same log at each call: on disk, or in memory."""
    folder = MemoryFolder()

    def open_log(settings: LogSettings = SMALL, purpose: bytes = b"TEST") -> Log:
        if request.param == "memory":
            return MemoryLog(purpose, settings, folder)
        return Log.open(tmp_path / "log", purpose=purpose, settings=settings)

    return open_log
