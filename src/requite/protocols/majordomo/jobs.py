"""A Majordomo worker's requests and settings."""

from __future__ import annotations

from dataclasses import dataclass, field
from math import inf
from typing import Any, Final

from requite.chronicle import MADE_UP, NO_CALL
from requite.core import jobs
from requite.core.liveness import HeartbeatPolicy
from requite.errors import ConfigurationError
from requite.value import Value

_CAPACITY_MAX: Final = (1 << 16) - 1  # READY counts it in two bytes


@dataclass(frozen=True, slots=True)
class WorkerPolicy(Value):
    """Settings of a worker.

    - `capacity`: the maximum of concurrent requests; dialects without ids allow only 1.
    - `heartbeat`: the interval, and when a silent broker counts as dead.
    - `lease_s`: lease of a handler without progress, in seconds (0: unlimited).
    - `drain_linger_s`: how long a draining worker without requests waits for one that the broker
      sent before it received DRAIN, which has no answer. The default is several round trips on any
      network; a later request is redelivered to another worker.
    - `notes`: emit `Note` effects: `delivered`, `finished`, `abandoned`.
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

    `due_at` is the caller's deadline, `lease_until` the end of its lease. `address` is the
    caller's, for the reply.
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
    """Return the client's call id of a request; empty if the broker made one, which differs per
    attempt of a call ([call-id])."""
    call_id = job.call_id
    return b"" if call_id == NO_CALL or call_id[0] & MADE_UP else call_id
