"""What a device writes into its chronicle (`requite.core.recording`).

A device keeps no account of single requests, and writes none: it tells who came and went, and
counts.
"""

from __future__ import annotations

from typing import Final

from requite.chronicle import NO_INSTANCE, Chronicle, EventRow, Kind
from requite.core.observer import Observer
from requite.core.recording import Recorder


class DeviceObserver(Observer):
    """What the engine of a device tells of its channels. This one listens to nothing."""

    def joined(self, side: str, now: float) -> None:
        """There is a new channel."""

    def lost(self, side: str, reason: str, now: float) -> None:
        """A channel is gone."""

    def passed(self, now: float) -> None:
        """Messages have passed."""

    def flush_open_spans(self, requests: int, replies: int, held: int, now: float) -> None:
        """So many have passed in all."""


NO_DEVICE_OBSERVER: Final = DeviceObserver()


class DeviceRecorder(Recorder, DeviceObserver):
    """Tells who is connected to a device, and what passes through it; of no single request."""

    def __init__(self, chronicle: Chronicle) -> None:
        super().__init__(chronicle, NO_INSTANCE)
        self._passed = (0, 0)

    def joined(self, side: str, now: float) -> None:
        """Tell of a new channel."""
        self._append_event(EventRow(now, Kind.WORKER_JOINED, reason=f"a channel to the {side}"))

    def lost(self, side: str, reason: str, now: float) -> None:
        """Tell of a channel that is gone."""
        text = f"a channel to the {side}: {reason}" if reason else f"a channel to the {side}"
        self._append_event(EventRow(now, Kind.WORKER_LOST, reason=text))

    def passed(self, now: float) -> None:
        """Tell soon that something has passed."""
        self._schedule_flush(now)

    def flush_open_spans(self, requests: int, replies: int, held: int, now: float) -> None:
        """Tell how much has passed since the last look; the counts are those of all time."""
        if (requests, replies) != self._passed:
            before = self._passed
            self._passed = requests, replies
            text = f"passed on {requests - before[0]} requests and {replies - before[1]} replies"
            self._append_event(EventRow(now, Kind.HEARTBEAT, reason=text, busy=held))
        self._flushed(False, now)
