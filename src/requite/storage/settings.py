"""How a log is kept."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from requite.errors import ConfigurationError

SEGMENT_SIZE_MIN: Final = 4096


@dataclass(frozen=True, slots=True, kw_only=True)
class LogSettings:
    """How a log is kept.

    `segment_size_bytes` is set aside at once for each new segment. `retain_bytes` and `retain_s`
    limit how much is kept, and for how long: whenever a segment is full, the oldest ones beyond
    that are removed; None keeps them. `sync=False` never waits for the disk: what was written
    survives the process, but not a power cut.
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
