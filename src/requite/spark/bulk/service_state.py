"""The state of a service, shared by the tasks of one job in one Python worker.

Spark reuses Python workers. The first task in each worker that finds a service down waits for one
timeout, and later tasks in that worker fail at once. A job here is one Spark stage: the next
action, or the next micro-batch, tries the service again.
"""

from __future__ import annotations

from collections import OrderedDict
from concurrent.futures import Future
from math import inf
from typing import TYPE_CHECKING, Final, NamedTuple
from uuid import UUID

from requite.errors import CallError
from requite.spark.bulk.outcome import Outcome
from requite.spark.bulk.rate import Bucket

if TYPE_CHECKING:
    from requite.spark.typed.contract import Contract

_JOBS_MAX: Final = 64  # bounds the memory of long-lived workers; older jobs have ended


class Job(NamedTuple):
    """The requests of one stage and job name. `stage` None: outside of Spark, never shared."""

    name: UUID
    stage: int | None


class ServiceState:
    """The state of the service, and the rate limit. For use on one event loop.

    `answered_at` is when the service last answered (monotonic seconds); `unanswered` counts the
    requests that ended without an answer since. `down_error` is the last of their errors once the
    service is considered down. `bucket` limits the rate; None: no limit. `check` is the check of a
    typed service, which the first task starts.
    """

    __slots__ = ("answered_at", "bucket", "check", "down_error", "unanswered")

    def __init__(self, bucket: Bucket | None = None) -> None:
        self.bucket = bucket
        self.answered_at = -inf
        self.unanswered = 0
        self.down_error: CallError | None = None
        self.check: Future[Contract | Outcome] | None = None

    def record_answer(self, now: float) -> None:
        """Record an answer of the service."""
        self.answered_at = now
        self.unanswered = 0


class ServiceStates:
    """The service state of the last jobs that had tasks in this Python worker."""

    def __init__(self) -> None:
        self._by_job: OrderedDict[Job, ServiceState] = OrderedDict()

    def __len__(self) -> int:
        return len(self._by_job)

    def of(self, job: Job, rate: float | None, now: float) -> ServiceState:
        """Return the state that earlier tasks of the job left, or a new one."""
        service_state = self._by_job.pop(job, None) or ServiceState(
            Bucket(rate, now) if rate else None
        )
        if job.stage is not None:
            self._by_job[job] = service_state
            if len(self._by_job) > _JOBS_MAX:
                self._by_job.popitem(last=False)
        return service_state
