"""Check what a client guarantees: I2, I11, and that no call is lost without a reason."""

from __future__ import annotations

from collections import Counter
from math import inf
from typing import Any, Final

from requite.errors import CallError
from requite.protocols.scalability.policy import LOSSES_BEFORE_REST, RESEND_S_DEFAULT, REST_S
from requite.request import Reply
from requite.sim.kernel.checkers.attempts import Attempts
from requite.sim.kernel.history import Call, Checker, Execution, History
from requite.sim.kernel.hub import Hub
from requite.sim.scalability.knobs import ScalabilityKnobs
from requite.sim.scalability.stack import NEWLINE

_SLACK_S: Final = 0.001


class OwnReply(Checker):
    """Requests and replies name their call, and carry its payload unchanged."""

    invariant = "I2"
    sentence = "no reply reaches a call that did not ask for it"

    def ended(self, call: Call, outcome: Reply | CallError) -> None:
        """Check the labels and the payload of a reply, and of the partials joined into it."""
        if not isinstance(outcome, Reply):
            return
        *parts, final, payload = (b"", b"", *outcome.body.split(NEWLINE))
        labels = [label.split() for label in parts if label]
        serials = {tuple(words[2:3]) for words in (*labels, final.split())}
        expected = [[b"part", b"%d" % call.number, *words[2:3]] for words in labels]
        numbered = [[*words, b"%d" % index] for index, words in enumerate(expected)]
        if labels != numbered or len(serials) > 1:
            self.violate(f"{call} got {parts!r} in front of {final!r}")
        if final.split()[:2] != [b"final", b"%d" % call.number]:
            self.violate(f"{call} got {final!r}")
        elif payload != call.payload:
            what = f"{len(payload)} bytes returned, {len(call.payload)} sent"
            self.violate(f"{call}: its payload was changed: {what}")

    def execution_started(self, execution: Execution) -> None:
        """Check that the handler got the request unchanged."""
        call = execution.call
        if execution.payload != call.payload:
            self.violate(f"{call}: its payload was changed on the way to {execution}")


class NeverRepeated(Attempts):
    """A client retries only idempotent requests, within the limit, and not too early."""

    def __init__(self, history: History) -> None:
        super().__init__(history)
        self._last: dict[int, tuple[float, Any]] = {}  # when, and over which channel

    def call_sent(self, hub: Hub, peer: Any, call: Call) -> None:
        """Check each attempt of a client."""
        super().call_sent(hub, peer, call)
        if call.sent > 1:
            sent_at, channel = self._last[call.number]
            resend_s = _resend_s(self.knobs)[hub.name]
            waited_s = self.now - sent_at
            if channel in hub.places and waited_s < (resend_s or inf) - _SLACK_S:
                what = f"after {waited_s:.4f} s, but its channel is alive"
                self.violate(f"{call} is sent again {what}")
        self._last[call.number] = self.now, peer


class ResentAtOnce(Checker):
    """When a call's channel is lost, it is resent as soon as another channel accepts it, or fails.
    It does not wait for its timer, but may back off if it loses channel after channel."""

    invariant = "resend"
    sentence = (
        "what was lost with its channel is sent over the next one at once, or the caller told"
    )

    def __init__(self, history: History) -> None:
        super().__init__(history)
        self._tried: dict[Call, Any] = {}  # the channel of the current attempt
        self._losses: Counter[Call] = Counter()
        self._up: dict[Hub, dict[Any, None]] = {}
        # Calls that wait for another channel; since when there is one, by the client's clock.
        self._lost: dict[Hub, dict[Call, float | None]] = {}

    def hub_started(self, hub: Hub) -> None:
        """Start to follow a client."""
        self._up[hub] = {}
        self._lost[hub] = {}

    def hub_ended(self, hub: Hub) -> None:
        """Forget a client that ended."""
        self._up.pop(hub, None)
        self._lost.pop(hub, None)

    def channel_up(self, hub: Hub, peer: Any) -> None:
        """Record that a channel accepts requests."""
        self._up[hub][peer] = None

    def channel_down(self, hub: Hub, peer: Any) -> None:
        """Record back-pressure."""
        self._up[hub].pop(peer, None)
        if not self._up[hub]:
            self._lost[hub] = dict.fromkeys(self._lost[hub])

    def call_sent(self, hub: Hub, peer: Any, call: Call) -> None:
        """Record an attempt."""
        self._tried[call] = peer
        self._lost[hub].pop(call, None)

    def channel_lost(self, hub: Hub, peer: Any) -> None:
        """Record the calls whose attempt is lost."""
        lost = [call for call, tried in self._tried.items() if tried is peer]
        self._losses.update(lost)
        self._lost[hub].update(dict.fromkeys(lost))

    def ended(self, call: Call, _outcome: Reply | CallError) -> None:
        """Forget a call."""
        self._tried.pop(call, None)
        self._losses.pop(call, None)
        for lost in self._lost.values():
            lost.pop(call, None)

    def rested(self, hub: Hub) -> None:
        """Check, after each input, how long calls without a channel have waited."""
        lost = self._lost.get(hub)
        if not lost or not self._up[hub]:
            return
        now = hub.now
        for call, since in list(lost.items()):
            lost[call] = now if since is None else since
            if since is not None and now - since > self.knobs.resend_late_s + self._rest_s(call):
                del lost[call]
                waited = f"has waited {now - since:.3f} s for another one"
                self.violate(f"{call} has lost its channel, and {waited}, but there is one")

    def _rest_s(self, call: Call) -> float:
        """Return how long a call may back off: jitter makes the pause up to twice as long."""
        more = self._losses[call] - LOSSES_BEFORE_REST
        longest_s = min(_resend_s(self.knobs)[call.client] or inf, RESEND_S_DEFAULT)
        return 2 * min(REST_S * 2.0**more, longest_s) if more >= 0 else 0.0


def _resend_s(knobs: ScalabilityKnobs) -> dict[str, float | None]:
    return {client.name: client.resend_s for client in knobs.clients}
