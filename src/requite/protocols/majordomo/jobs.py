"""The nouns of a Majordomo worker: a request in its hands, and what may be set and seen."""

from __future__ import annotations

from dataclasses import dataclass, field
from math import inf
from typing import Any, Final

from requite.chronicle import MADE_UP, NO_CALL
from requite.core import jobs
from requite.core.liveness import HeartbeatPolicy
from requite.errors import ConfigurationError

_CAPACITY_MAX: Final = (1 << 16) - 1  # READY counts it in two bytes


@dataclass(frozen=True, slots=True)
class WorkerPolicy:
    """What may be set on a worker; seconds and counts.

    - `capacity`: how many requests it takes at a time; dialects without ids allow 1 only.
    - `heartbeat`: how often to be heard, and when a silent broker is gone.
    - `lease_s`: how long a worker vouches for a handler that shows no progress (0: without end).
    - `drain_linger_s`: how long a worker that drains waits, once it has nothing left to do, for a
      request that was sent before the broker knew; there is no answer to DRAIN. Several round trips
      on any network; a request that comes later is given to another worker.
    - `notes`: make `Note` effects: `delivered`, `finished`, `abandoned`.
    """

    capacity: int = 1
    heartbeat: HeartbeatPolicy = field(default_factory=HeartbeatPolicy)
    lease_s: float = 0.0
    drain_linger_s: float = 0.25
    notes: bool = False

    def __post_init__(self) -> None:
        if not 1 <= self.capacity <= _CAPACITY_MAX:
            raise ConfigurationError(f"capacity must be 1 to {_CAPACITY_MAX}, not {self.capacity}")
        if self.lease_s < 0 or self.drain_linger_s < 0:
            raise ConfigurationError("lease_s and drain_linger_s cannot be negative")


class Job(jobs.Job):
    """A request from the broker.

    `due_at` is the caller's deadline, `lease_until` the end of the time its handler has to show
    progress. `address` is the caller's, for the reply.
    """

    __slots__ = (
        "address",
        "attempt",
        "dispatch_id",
        "due_at",
        "lease_until",
        "vouched_at",
    )

    def __init__(
        self,
        dispatch_id: int,
        address: bytes,
        call_id: bytes,
        attempt: int,
        due_at: float,
        lease_until: float,
    ) -> None:
        self.dispatch_id = dispatch_id
        self.address = address
        self.call_id = call_id
        self.attempt = attempt
        self.due_at = due_at
        self.lease_until = lease_until
        self.vouched_at = -inf  # when the broker was last sent PROGRESS
        self.abandoned = ""
        self.joined = None

    def facts(self) -> dict[str, Any]:
        """See `requite.core.jobs.Job.facts`."""
        return {"dispatch_id": self.dispatch_id}

    def __repr__(self) -> str:
        return f"<Job {self.dispatch_id}>"


def clients_call_id(job: Job) -> bytes:
    """Return the call id that a client gave a request; empty where a broker had to make one up,
    which it does for each try of a call anew ([call-id])."""
    call_id = job.call_id
    return b"" if call_id == NO_CALL or call_id[0] & MADE_UP else call_id
