"""What may be set on a service that runs each request once, and what can be seen of it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, Literal, NamedTuple, get_args

from requite.errors import ConfigurationError

Unkeyed = Literal["refuse", "run"]
InDoubt = Literal["refuse", "run"]

# A record of the log holds 16 MiB. What a key, its record's header and its frames' sizes take of
# that is far below the difference.
REPLY_SIZE_MAX: Final = 15 << 20


@dataclass(frozen=True, slots=True)
class DedupPolicy:
    """What may be set; seconds, counts and bytes.

    - `window_s`: how long a reply is kept after its handler has ended.
    - `entries_max`, `bytes_max`: how much is kept; beyond that the oldest replies go first, and are
      counted. Bytes are those of the replies in memory, and those of the log where there is one.
    - `unkeyed`: what becomes of a request that nothing distinguishes from others.
    - `in_doubt`: what becomes of the repetition of a request whose handler had started when its
      process ended: `refuse` it, since it may have run, or `run` it, a second time perhaps.
    - `store_failures`: keep negative replies, too; otherwise a repetition runs.
    - `durable`: records go to a log, and replies leave when they are on the disk.
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
            raise ConfigurationError(f"window is a positive number of seconds, not {self.window_s}")
        if self.entries_max < 1 or self.bytes_max < 1:
            raise ConfigurationError("max_entries and max_bytes are at least 1")
        for name, given in (("unkeyed", self.unkeyed), ("in_doubt", self.in_doubt)):
            if given not in get_args(Unkeyed):
                raise ConfigurationError(f'{name} is "refuse" or "run", not {given!r}')

    @property
    def tells_starts(self) -> bool:
        """Whether the start of a handler is on the disk before it starts."""
        return self.durable and self.in_doubt == "refuse"


class DedupStats(NamedTuple):
    """What a service has done with requests since its store was opened, and what it holds.

    Counts: `ran` are handlers started, `replayed` repetitions that got a stored reply, `joined`
    those that waited for a handler that was running, `refused` requests that were answered
    negatively without running. `expired` replies left with their window, `evicted` ones before.
    Now: `running` handlers, `kept` replies, `in_doubt` of which nobody knows whether they ended,
    `size_bytes` of all that is kept.
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
