"""Settings and statistics of a service that runs each request once."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, Literal, NamedTuple, get_args

from requite.errors import ConfigurationError

Unkeyed = Literal["refuse", "run"]
InDoubt = Literal["refuse", "run"]

# A record of the log has at most 16 MiB; the difference is ample for key, header and frame sizes.
REPLY_SIZE_MAX: Final = 15 << 20


@dataclass(frozen=True, slots=True)
class DedupPolicy:
    """Settings.

    - `window_s`: seconds for which a reply is retained after its handler has ended.
    - `entries_max`, `bytes_max`: maximum number and size of replies. Beyond that, the principal
      with the most loses its oldest ones. The size is that of the log, or without one of the
      replies in memory. A log is shortened by its oldest segments: replies in them are evicted,
      but those of a principal with at most its share of half of the log are copied to its end.
    - `unkeyed`: whether to `refuse` or `run` a request without key and call id.
    - `in_doubt`: what to do with the repetition of a request whose handler had started when its
      process ended: `refuse` it, since it may have run, or `run` it, perhaps a second time.
    - `store_failures`: retain negative replies too; otherwise a repetition runs.
    - `durable`: write records to a log, and send replies only once they are on the disk.
    """

    window_s: float = 3600.0
    entries_max: int = 100_000
    bytes_max: int = 256 << 20
    unkeyed: Unkeyed = "refuse"
    in_doubt: InDoubt = "refuse"
    store_failures: bool = False
    durable: bool = False

    def __post_init__(self) -> None:
        if not self.window_s > 0:
            raise ConfigurationError(
                f"window must be a positive number of seconds, not {self.window_s}"
            )
        if self.entries_max < 1 or self.bytes_max < 1:
            raise ConfigurationError("max_entries and max_bytes must be at least 1")
        for name, given in (("unkeyed", self.unkeyed), ("in_doubt", self.in_doubt)):
            if given not in get_args(Unkeyed):
                raise ConfigurationError(f'{name} must be "refuse" or "run", not {given!r}')

    @property
    def tells_starts(self) -> bool:
        """Whether a BEGUN record is stored before a handler starts."""
        return self.durable and self.in_doubt == "refuse"


class DedupStats(NamedTuple):
    """Statistics of a service.

    Since its store was opened: `ran` handlers started; `replayed` repetitions answered with a
    stored reply; `joined` repetitions that waited for a running handler; `refused` requests
    answered negatively without running; `expired` replies removed at the end of their window;
    `evicted` replies removed earlier. Now: `running` handlers, `kept` replies, `in_doubt` requests
    that may or may not have run, `size_bytes` of log or replies.
    """

    ran: int = 0
    replayed: int = 0
    joined: int = 0
    refused: int = 0
    expired: int = 0
    evicted: int = 0
    running: int = 0
    kept: int = 0
    in_doubt: int = 0
    size_bytes: int = 0
