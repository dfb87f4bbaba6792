"""Settings of a log."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from requite.errors import ConfigurationError

SEGMENT_SIZE_MIN: Final = 4096


@dataclass(frozen=True, slots=True, kw_only=True)
class LogSettings:
    """Settings of a log.

    Each new segment allocates `segment_size_bytes`. `retain_bytes` and `retain_s` limit the log's
    size and age: whenever a segment is full, the oldest ones beyond the limits are removed (None:
    no limit). `sync=False` never waits for the disk: written data survive the process, but not a
    power cut.
    """

    segment_size_bytes: int = 64 * 1024 * 1024
    retain_bytes: int | None = None
    retain_s: float | None = None
    sync: bool = True

    def __post_init__(self) -> None:
        if not SEGMENT_SIZE_MIN <= self.segment_size_bytes < 1 << 40:
            raise ConfigurationError(f"segment_size_bytes must be at least {SEGMENT_SIZE_MIN}")
        if self.retain_bytes is not None and self.retain_bytes < 0:
            raise ConfigurationError("retain_bytes must not be negative")
        if self.retain_s is not None and not self.retain_s >= 0:
            raise ConfigurationError("retain_s must not be negative")
