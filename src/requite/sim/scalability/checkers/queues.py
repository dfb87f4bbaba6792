"""Check what devices and workers do with queued requests: I8, I9 and I15."""

from __future__ import annotations

from typing import Any

from requite.sim.kernel.checkers import queues
from requite.sim.kernel.checkers.attempts import SentInTime
from requite.sim.kernel.hub import Hub
from requite.sim.scalability.stack import TAG_SIZE


class _Queues(queues.Queues):
    """A checker that follows the queue of each device, too."""

    def request_sent(self, hub: Hub, _peer: Any, payload: bytes) -> None:
        """Record that a device forwards a request; a device that reads has an empty queue."""
        if hub.kind == "device":
            self.request_taken(hub, None, payload[TAG_SIZE:])


class FairQueues(_Queues, queues.FairQueues):
    """Channels with queued requests are served in turn."""


class NeverStartedInVain(_Queues, SentInTime):
    """Requests that start, or are forwarded, came over a channel that is still open; clients send
    no request that has ended."""

    def request_taken(self, hub: Hub, peer: Any, payload: bytes) -> None:
        """Check that the request is queued."""
        if self.waiting[hub].taken(payload) is None:
            self.violate(f"{hub} starts {payload[:60]!r}, which came over no open channel")


class Bounded(_Queues, queues.Bounded):
    """No party has more requests in hand than allowed; a party stops reading a channel whose queue
    is full."""
