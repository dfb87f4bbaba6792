"""What responders write into their chronicles (`requite.core.recording`).

A call keeps its id on the way (the property `message-id`), so that both tell of it by one name.
"""

from __future__ import annotations

from requite.core.recording import JobRecorder
from requite.protocols.amqp.jobs import Job


class ResponderRecorder(JobRecorder[Job]):
    """Tells about requests in the hands of a worker."""

    def delivered(self, job: Job, size: int, now: float) -> None:
        """Note a request; one of a client without ids gets one."""
        job.call_id = job.call_id or self._new_id()
        job.delivered_at = now
        job.started_at = 0.0
        job.size = size
        job.is_told = False
        self._look_soon(now)
