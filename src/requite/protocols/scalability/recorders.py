"""The journal of a device (`requite.core.recording`).

A device does not track single requests; it journals its channels, and counts of messages.
"""

from __future__ import annotations

from requite.chronicle import NO_INSTANCE, Chronicle, EventRow, Kind
from requite.core.observer import Observer
from requite.core.recording import Rows


class DeviceObserver(Observer):
    """Events of a device's engine. This class ignores them."""

    def joined(self, side: str, now: float) -> None:
        """A channel was added."""

    def lost(self, side: str, reason: str, now: float) -> None:
        """A channel was lost."""

    def passed(self, now: float) -> None:
        """Messages were passed on."""

    def flush_open_spans(self, requests: int, replies: int, held: int, now: float) -> None:
        """The instant `flush_at` has come; these are the total counts."""


class DeviceRecorder(DeviceObserver):
    """Journals the channels of a device, and counts of messages."""

    keeps_journal = True

    def __init__(self, chronicle: Chronicle, *, notes: bool = False) -> None:
        super().__init__(notes=notes)
        self._rows = Rows(self, chronicle, NO_INSTANCE)
        self._passed = (0, 0)

    def dropped(self, why: str, now: float, count: int = 1) -> None:
        """Count dropped messages."""
        self._rows.dropped(why, now, count)

    def joined(self, side: str, now: float) -> None:
        """Journal a new channel."""
        self._rows.append_event(
            EventRow(now, Kind.WORKER_JOINED, reason=f"a channel to the {side}")
        )

    def lost(self, side: str, reason: str, now: float) -> None:
        """Journal a lost channel."""
        text = f"a channel to the {side}: {reason}" if reason else f"a channel to the {side}"
        self._rows.append_event(EventRow(now, Kind.WORKER_LOST, reason=text))

    def passed(self, now: float) -> None:
        """Schedule a flush of the counts."""
        self._rows.schedule_flush(now)

    def flush_open_spans(self, requests: int, replies: int, held: int, now: float) -> None:
        """Journal the messages since the last flush; the arguments are total counts."""
        if (requests, replies) != self._passed:
            before = self._passed
            self._passed = requests, replies
            text = f"forwarded {requests - before[0]} requests and {replies - before[1]} replies"
            self._rows.append_event(EventRow(now, Kind.HEARTBEAT, reason=text, busy=held))
        self._rows.flushed(False, now)
