"""After a disk failure, Titanic reopens only its own log."""

from __future__ import annotations

from pathlib import Path
from typing import Any, cast

import pytest

from requite.errors import LogMismatch
from requite.storage import LogReader
from requite.titanic.outage import Outage
from requite.titanic.settings import TitanicSettings


def test_a_folder_that_is_swapped_while_it_is_reopened_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    kept, away = tmp_path / "kept", tmp_path / "away"
    settings = TitanicSettings(kept)
    store = settings.open()
    outage = Outage(settings, cast(Any, None))
    outage.store = store
    segments = LogReader.segments

    def swapped(reader: LogReader) -> Any:
        found = segments(reader)
        store.close()
        kept.rename(away)
        kept.mkdir()
        return found

    monkeypatch.setattr(LogReader, "segments", swapped)
    with pytest.raises(LogMismatch, match="another log, or none"):
        outage._open()
    assert not list(kept.glob("*.seg*"))
