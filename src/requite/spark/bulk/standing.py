"""What the tasks of one job in one Python worker have found out, for those that start after them.

Spark keeps Python workers for further tasks. So the first task of each worker that finds a service
down pays a timeout for it, and those after it nothing; tasks on other machines do the same there.
A job here is one stage of Spark's: the next action, or the next micro-batch, tries anew.
"""

from __future__ import annotations

from collections import OrderedDict
from math import inf
from typing import Final, NamedTuple
from uuid import UUID

from requite.errors import CallError
from requite.spark.bulk.rate import Bucket

_JOBS_MAX: Final = 64  # of a worker that goes on for days; older ones have ended long ago


class Job(NamedTuple):
    """The requests of one stage under one name. `stage` None: outside of Spark, shared by none."""

    name: UUID
    stage: int | None


class Standing:
    """Whether the service is there, and how much may be sent. For one event loop.

    `heard_at` is when the service last gave a sign of life (monotonic seconds), `unheard` counts
    the requests that ended nowhere since. `lost_to` is the last of those errors once the service
    is taken for down. `bucket` is there where a rate is to be kept.
    """

    __slots__ = ("bucket", "heard_at", "lost_to", "unheard")

    def __init__(self, bucket: Bucket | None = None) -> None:
        self.bucket = bucket
        self.heard_at = -inf
        self.unheard = 0
        self.lost_to: CallError | None = None

    def hear(self, now: float) -> None:
        """Note a sign of life."""
        self.heard_at = now
        self.unheard = 0


class Standings:
    """The standing of each job that a Python worker has had tasks of lately."""

    def __init__(self) -> None:
        self._by_job: OrderedDict[Job, Standing] = OrderedDict()

    def __len__(self) -> int:
        return len(self._by_job)

    def of(self, job: Job, rate: float | None, now: float) -> Standing:
        """Return the standing of a job: that of its former tasks, or a new one."""
        standing = self._by_job.pop(job, None) or Standing(Bucket(rate, now) if rate else None)
        if job.stage is not None:
            self._by_job[job] = standing
            if len(self._by_job) > _JOBS_MAX:
                self._by_job.popitem(last=False)
        return standing
