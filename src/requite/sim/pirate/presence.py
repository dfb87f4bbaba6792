"""Check the heartbeats between a paranoid queue and its workers."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from requite.engine import Cause, Disconnect
from requite.sim.kernel.history import Checker, History
from requite.sim.kernel.hub import Hub
from requite.sim.pirate.knobs import PirateVariant
from requite.sim.pirate.queueing import READY


class _PeerActivity:
    """One end of a connection between queue and worker: when it last received and sent.

    `heard_at` is the world's time; `heard_own` the process's, which stops while it is frozen.
    `is_ready`: READY was sent. `is_busy`: the worker has a request.
    """

    def __init__(self, hub: Hub) -> None:
        self.heard_at = hub.process.world.now
        self.heard_own = self.spoke_own = hub.now
        self.is_ready = False
        self.is_busy = False
        self.is_reported = False


class HeardInTime(Checker):
    """Both ends send at least once per interval, and neither gives up a peer that it heard."""

    invariant = "presence"
    sentence = "peers send heartbeats at regular intervals; one that is silent is gone (6/PPP)"

    def __init__(self, history: History) -> None:
        super().__init__(history)
        self._activity: dict[Any, _PeerActivity] = {}

    # --- connections ------------------------------------------------------------------------------
    def channel_up(self, hub: Hub, peer: Any) -> None:
        """Record, at the queue, a connection to a worker."""
        if hub.kind == "queue":
            self._is_there(hub, peer)

    def caller_up(self, hub: Hub, peer: Any) -> None:
        """Record, at the worker, a connection to the queue."""
        if hub.kind == "worker":
            self._is_there(hub, peer)

    def _is_there(self, hub: Hub, peer: Any) -> None:
        if self.knobs.crew is PirateVariant.PARANOID and peer not in self._activity:
            self._activity[peer] = _PeerActivity(hub)

    def channel_lost(self, _hub: Hub, peer: Any) -> None:
        """Forget a lost connection."""
        self._activity.pop(peer, None)

    def hub_ended(self, hub: Hub) -> None:
        """Forget the connections of a process that ended."""
        for peer in hub.places:
            self._activity.pop(peer, None)

    # --- messages ---------------------------------------------------------------------------------
    def batch_came(self, hub: Hub, peer: Any) -> None:
        """Record that the peer was heard."""
        if activity := self._activity.get(peer):
            activity.heard_at = hub.process.world.now
            activity.heard_own = hub.now

    def reply_came(self, hub: Hub, peer: Any, message: Sequence[bytes]) -> None:
        """Record, at the queue, READY and the end of a request."""
        activity = self._activity.get(peer)
        if activity is None:
            return
        if message[0] in READY and len(message) == 1 and not activity.is_ready:
            activity.is_ready = True
            activity.spoke_own = hub.now
        if len(message) > 1 or message[0] in READY:
            activity.is_busy = False

    def request_came(self, _hub: Hub, peer: Any, message: Sequence[bytes]) -> None:
        """Record, at the worker, a request."""
        activity = self._activity.get(peer)
        if activity is not None and len(message) > 1:
            activity.is_busy = True

    def request_sent(self, hub: Hub, peer: Any, message: Sequence[bytes]) -> None:
        """Record what the queue sends."""
        self._spoke(hub, peer)
        if len(message) > 1 and (activity := self._activity.get(peer)):
            activity.is_busy = True

    def reply_sent(self, hub: Hub, peer: Any, message: Sequence[bytes]) -> None:
        """Record what the worker sends."""
        self._spoke(hub, peer)
        activity = self._activity.get(peer)
        if activity is None:
            return
        activity.is_ready = True
        if len(message) > 1:
            activity.is_busy = False
            activity.heard_own = hub.now

    def _spoke(self, hub: Hub, peer: Any) -> None:
        if activity := self._activity.get(peer):
            self._check_spoken(hub, peer, activity)
            activity.spoke_own = hub.now

    # --- checks -----------------------------------------------------------------------------------
    def rested(self, hub: Hub) -> None:
        """Check, after each input, that no heartbeat is overdue."""
        for peer in () if hub.stopped else hub.places:
            activity = self._activity.get(peer)
            if activity is not None and not activity.is_reported:
                self._check_spoken(hub, peer, activity)
                self._check_heard(hub, peer, activity)

    def _check_spoken(self, hub: Hub, peer: Any, activity: _PeerActivity) -> None:
        silent_s = hub.now - activity.spoke_own
        limit_s = self.knobs.interval_s + self.knobs.heartbeat_late_s
        if activity.is_ready and silent_s > limit_s and not activity.is_reported:
            activity.is_reported = True
            self.violate(f"{hub} has sent nothing to {hub.names[peer]} for {silent_s:.3f} s")

    def _check_heard(self, hub: Hub, peer: Any, activity: _PeerActivity) -> None:
        silent_s = hub.now - activity.heard_own
        # One interval more: after its own pause a process does not count the silence.
        limit_s = self.knobs.silence_s + self.knobs.interval_s + self.knobs.heartbeat_late_s
        if activity.is_ready and not activity.is_busy and silent_s > limit_s:
            activity.is_reported = True
            self.violate(f"{hub} has not heard {hub.names[peer]} for {silent_s:.3f} s, and waits")

    def sent_away(self, hub: Hub, effect: Disconnect) -> None:
        """Check that a peer given up as silent was silent, and had no request."""
        peer = effect.peer
        activity = self._activity.get(peer)
        if activity is None or effect.cause is not Cause.SILENT:
            return
        silent_s = hub.process.world.now - activity.heard_at
        if silent_s < self.knobs.silence_s - self.knobs.heartbeat_late_s:
            self.violate(f"{hub} gives up {hub.names[peer]}, but heard it {silent_s:.3f} s ago")
        if activity.is_busy:
            self.violate(f"{hub} gives up {hub.names[peer]} while a request is in flight")
