"""Settings and status of a journal."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Final, NamedTuple

from requite.errors import ConfigurationError

SEGMENT_SIZE_MIN: Final = 1 << 20  # the largest block with all its strings is half of this


@dataclass(frozen=True, slots=True)
class JournalSettings:
    """Settings of a journal. Times are in seconds.

    Rows are written every `flush_every_s`, the most that a killed process loses, and synced to disk
    every `sync_every_s`, the most that a power cut loses. `retain_bytes` and `retain_s` limit the
    log's size and age by removing its oldest segments (None: no limit). If writes fail, up to
    `backlog_rows_max` rows are buffered, and writing is retried every `retry_every_s`. `close`
    waits at most `close_timeout_s` for a hanging disk. `ship_to` is a folder, or the URL of a
    store, to which the log is copied every `ship_every_s` and on `close`.
    """

    flush_every_s: float = 0.05
    sync_every_s: float = 1.0
    retry_every_s: float = 1.0
    segment_size_bytes: int = 16 << 20
    retain_bytes: int | None = None
    retain_s: float | None = None
    backlog_rows_max: int = 1 << 16
    close_timeout_s: float = 5.0
    ship_to: str | None = None
    ship_every_s: float = 5.0

    def __post_init__(self) -> None:
        if self.segment_size_bytes < SEGMENT_SIZE_MIN:
            raise ConfigurationError(
                f"segment_size_bytes of a journal must be at least {SEGMENT_SIZE_MIN:,}, not"
                f" {self.segment_size_bytes:,}"
            )
        if self.flush_every_s <= 0:
            raise ConfigurationError(f"flush_every_s must be positive, not {self.flush_every_s}")
        if self.ship_every_s <= 0:
            raise ConfigurationError(f"ship_every_s must be positive, not {self.ship_every_s}")
        if min(self.sync_every_s, self.retry_every_s, self.close_timeout_s) < 0:
            raise ConfigurationError("the times in JournalSettings cannot be negative")


class JournalStatus(NamedTuple):
    """Status of a journal.

    `events` counts the event numbers used so far (a span reserves four), `waiting` the rows not yet
    written, `dropped` the rows lost. `failure` describes a failing disk; "" if there is none.
    """

    path: Path
    events: int
    bytes_written: int
    waiting: int
    dropped: int
    failure: str
