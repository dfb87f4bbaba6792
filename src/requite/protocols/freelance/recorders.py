"""What clients and servers write into their chronicles (`requite.recording`)."""

from __future__ import annotations

from collections.abc import Iterable

from requite.errors import CallError
from requite.protocols.freelance.calls import PendingCall
from requite.protocols.freelance.jobs import Job
from requite.recording import CallRecorder, JobRecorder, encode_name, refusal


class ClientRecorder(CallRecorder[PendingCall]):
    """Tells about calls, at the client."""

    def about(self, call: PendingCall) -> tuple[bytes, int, float]:
        """Return the name of a call's service, the bytes of its body, and its deadline."""
        asked = call.asked
        return encode_name(asked.service), sum(map(len, asked.frames)), asked.deadline

    def replied(self, call: PendingCall, body: Iterable[bytes], now: float) -> None:
        """Tell of the reply to a call."""
        self.answered(call, sum(map(len, body)), now)

    def refused(self, error: CallError, now: float) -> None:
        """Tell that a call was not taken on."""
        self._happen(refusal(error, now))


class ServerRecorder(JobRecorder[Job]):
    """Tells about requests in the hands of a server, under ids of the server's own."""
