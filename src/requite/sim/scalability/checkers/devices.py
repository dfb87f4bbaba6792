"""Check what devices forward: I2, and the hop limit (sp-request-reply-01, section 6)."""

from __future__ import annotations

from collections import Counter
from typing import Any

from requite.sim.kernel.history import Checker, History
from requite.sim.kernel.hub import Hub
from requite.sim.scalability.stack import BOTTOM, TAG_SIZE, parse


class Unaltered(Checker):
    """A device forwards each message once, with one tag more (request) or less (reply)."""

    invariant = "I2"
    sentence = "an endpoint does not modify requests or replies"

    def __init__(self, history: History) -> None:
        super().__init__(history)
        self._requests: dict[Hub, Counter[bytes]] = {}
        self._replies: dict[Hub, Counter[bytes]] = {}

    def hub_started(self, hub: Hub) -> None:
        """Start to follow a process."""
        self._requests[hub] = Counter()
        self._replies[hub] = Counter()

    def hub_ended(self, hub: Hub) -> None:
        """Forget a process that ended."""
        self._requests.pop(hub, None)
        self._replies.pop(hub, None)

    def request_came(self, hub: Hub, _peer: Any, payload: bytes) -> None:
        """Record a received request."""
        self._requests[hub][payload] += 1

    def request_sent(self, hub: Hub, _peer: Any, payload: bytes) -> None:
        """Check that a forwarded request was received."""
        if hub.kind != "device":
            return
        if payload[0] & BOTTOM:
            self.violate(f"{hub} adds the tag {payload[:TAG_SIZE].hex()} to a request")
        self._take(hub, self._requests[hub], payload[TAG_SIZE:], "request")

    def reply_came(self, hub: Hub, _peer: Any, payload: bytes) -> None:
        """Record a received reply."""
        if hub.kind == "device" and len(payload) >= TAG_SIZE and not payload[0] & BOTTOM:
            self._replies[hub][payload[TAG_SIZE:]] += 1

    def reply_sent(self, hub: Hub, _peer: Any, payload: bytes) -> None:
        """Check that a forwarded reply was received."""
        if hub.kind == "device":
            self._take(hub, self._replies[hub], payload, "reply")

    def _take(self, hub: Hub, came: Counter[bytes], payload: bytes, what: str) -> None:
        if not came[payload]:
            self.violate(f"{hub} forwards a {what} that it did not receive: {payload[:60]!r}")
        came[payload] -= 1


class HopsBounded(Checker):
    """No request gets more tags than the hop limit, and none is forwarded more often."""

    invariant = "hops"
    sentence = "a request whose backtrace exceeds the threshold is discarded"

    def __init__(self, history: History) -> None:
        super().__init__(history)
        self._handed_on: Counter[int] = Counter()  # by the number of the call
        self._too_deep: set[bytes] = set()

    def request_sent(self, hub: Hub, peer: Any, payload: bytes) -> None:
        """Check the depth of a request, and how often it was forwarded."""
        depth = _depth(payload)
        if depth > self.knobs.hops:
            self.violate(f"{hub} sends a request with {depth} tags to {hub.names[peer]}")
        call = hub.call_of(payload) if hub.kind == "device" else None
        if call is None:
            return
        self._handed_on[call.number] += 1
        limit = call.sent * (self.knobs.hops - 1)
        if self._handed_on[call.number] > limit:
            self.violate(f"{call}, sent {call.sent} times, was forwarded more than {limit} times")

    def request_came(self, _hub: Hub, _peer: Any, payload: bytes) -> None:
        """Record a request that a worker must drop."""
        parsed = parse(payload)
        if parsed is not None and parsed.depth > self.knobs.hops:
            self._too_deep.add(payload)

    def request_taken(self, hub: Hub, _peer: Any, payload: bytes) -> None:
        """Check that a worker starts no request that it must drop."""
        if payload in self._too_deep:
            self.violate(f"{hub} starts {payload[:60]!r}, with more than {self.knobs.hops} tags")


def _depth(payload: bytes) -> int:
    """Count the tags of a message, even if it has no request id."""
    parsed = parse(payload)
    return len(payload) // TAG_SIZE if parsed is None else parsed.depth
