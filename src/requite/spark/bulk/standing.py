"""The state of a service, shared by the tasks of one job in one Python worker.

Spark reuses Python workers. The first task in each worker that finds a service down waits for one
timeout, and later tasks in that worker fail at once. A job here is one Spark stage: the next
action, or the next micro-batch, tries the service again.
"""

from __future__ import annotations

from collections import OrderedDict
from math import inf
from typing import Final, NamedTuple
from uuid import UUID

from requite.errors import CallError
from requite.spark.bulk.rate import Bucket

_JOBS_MAX: Final = 64  # bounds the memory of long-lived workers; older jobs have ended


class Job(NamedTuple):
    """The requests of one stage and job name. `stage` None: outside of Spark, never shared."""

    name: UUID
    stage: int | None


class Standing:
    """The state of the service, and the rate limit. For use on one event loop.

    `heard_at` is when the service last answered (monotonic seconds); `unheard` counts the requests
    that ended unanswered since. `lost_to` is the last of their errors once the service is
    considered down. `bucket` limits the rate; None: no limit.
    """

    __slots__ = ("bucket", "heard_at", "lost_to", "unheard")

    def __init__(self, bucket: Bucket | None = None) -> None:
        self.bucket = bucket
        self.heard_at = -inf
        self.unheard = 0
        self.lost_to: CallError | None = None

    def hear(self, now: float) -> None:
        """Record an answer of the service."""
        self.heard_at = now
        self.unheard = 0


class Standings:
    """The service state of the last jobs that had tasks in this Python worker."""

    def __init__(self) -> None:
        self._by_job: OrderedDict[Job, Standing] = OrderedDict()

    def __len__(self) -> int:
        return len(self._by_job)

    def of(self, job: Job, rate: float | None, now: float) -> Standing:
        """Return the state that earlier tasks of the job left, or a new one."""
        standing = self._by_job.pop(job, None) or Standing(Bucket(rate, now) if rate else None)
        if job.stage is not None:
            self._by_job[job] = standing
            if len(self._by_job) > _JOBS_MAX:
                self._by_job.popitem(last=False)
        return standing
