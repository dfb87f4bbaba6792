"""How a journal is written, and how it goes."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Final, NamedTuple

from requite.errors import ConfigurationError

SEGMENT_SIZE_MIN: Final = 1 << 20  # the largest block, with all of its strings, is half of that


@dataclass(frozen=True, slots=True)
class JournalSettings:
    """How a journal is written. Times are seconds.

    Rows are written every `flush_every_s`: that much is lost with a process that is killed. They
    reach the disk every `sync_every_s`: that much is lost with a machine that is. `retain_bytes`
    and `retain_s` remove this log's oldest segments (None: none). While the disk refuses them, up
    to `backlog_rows_max` rows are kept, and it is asked again every `retry_every_s`.
    `close_timeout_s` is how long `close` waits for a disk that hangs. `ship_to` is the folder, or
    the URL of a store, to which this log is copied, every `ship_every_s` and when it is closed.
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
                f"a journal's segments have at least {SEGMENT_SIZE_MIN:,} bytes, "
                f"not {self.segment_size_bytes:,}"
            )
        if self.flush_every_s <= 0:
            raise ConfigurationError(f"flush_every_s must be positive, not {self.flush_every_s}")
        if self.ship_every_s <= 0:
            raise ConfigurationError(f"ship_every_s must be positive, not {self.ship_every_s}")
        if min(self.sync_every_s, self.retry_every_s, self.close_timeout_s) < 0:
            raise ConfigurationError("times of a journal cannot be negative")


class JournalStatus(NamedTuple):
    """How a journal goes.

    `events` numbers what was written so far (a span reserves four numbers), `waiting` counts rows
    that are not written yet, `dropped` those that were lost. `failure` is "" while all is well.
    """

    path: Path
    events: int
    bytes_written: int
    waiting: int
    dropped: int
    failure: str
