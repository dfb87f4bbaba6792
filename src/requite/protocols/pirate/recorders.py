"""What clients, servers and workers of the Pirates write into their chronicles
(`requite.recording`).
"""

from __future__ import annotations

from collections.abc import Iterable

from requite.errors import CallError
from requite.protocols.pirate.calls import PendingCall
from requite.protocols.pirate.jobs import Job
from requite.recording import CallRecorder, JobRecorder, encode_name, refusal


class ClientRecorder(CallRecorder[PendingCall]):
    """Tells about calls, at the client."""

    def about(self, call: PendingCall) -> tuple[bytes, int, float]:
        """Return the name of a call's service, the bytes of its body, and its deadline."""
        return encode_name(call.asked.service), call.size, call.asked.deadline

    def replied(self, call: PendingCall, frames: Iterable[bytes], now: float) -> None:
        """Tell of the reply to a call."""
        self.answered(call, sum(map(len, frames)), now)

    def refused(self, service: str, error: CallError, now: float) -> None:
        """Tell that a call was not taken on."""
        self._happen(refusal(error, now, service))


class WorkerRecorder(JobRecorder[Job]):
    """Tells about requests in the hands of a server or worker, under ids of its own."""
