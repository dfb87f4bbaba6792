"""Check RPC over AMQP, in addition to the checks of all calls (`kernel.checkers.calls`).

RabbitMQ redelivers a request when its worker is lost, even one that is not idempotent. So I11
restricts only what callers publish, and I7 bounds how often each published request may run.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from functools import cached_property
from math import inf
from typing import Any, Final

from requite.engine import Disconnect
from requite.errors import CallError, NoService, RemoteViolation
from requite.protocols.amqp import methods, wire
from requite.protocols.amqp.connected import SIDE, WORK
from requite.protocols.amqp.properties import decode_properties
from requite.request import Reply
from requite.sim.amqp.words import Words
from requite.sim.kernel.checkers import calls
from requite.sim.kernel.checkers.attempts import Resends, SentInTime
from requite.sim.kernel.history import Call, Checker, Execution, History
from requite.sim.kernel.hub import Hub
from requite.sim.kernel.workload import NOBODY, parse_task
from requite.sim.rabbitmq import server_methods

_SLACK_S: Final = 0.001
# The host re-arms its timer only for differences of more than that.
_TIMER_SLACK_S: Final = 0.005
# Methods after which a client can receive no more replies on the connection.
_LOSSES: Final = (methods.BASIC_CANCEL, methods.CHANNEL_CLOSE, methods.CONNECTION_CLOSE)


class SentOnce(Resends):
    """A client publishes a request again only if it is idempotent, within the limit, and for a
    reason: the reply path was lost, or the attempt timed out."""

    def __init__(self, history: History) -> None:
        super().__init__(history)
        # the time of the last attempt, and the losses before it
        self._last: dict[Call, tuple[float, int]] = {}
        self._losses: Counter[Hub] = Counter()  # how often the reply path was lost
        # the same before the current input, which may cause both a loss and a publish
        self._losses_before: Counter[Hub] = Counter()

    @cached_property
    def _attempt_s(self) -> dict[str, float | None]:
        return {client.name: client.attempt_s for client in self.knobs.clients}

    def channel_lost(self, hub: Hub, _peer: Any) -> None:
        """Count a lost connection."""
        self._losses[hub] += 1

    def reply_came(self, hub: Hub, _peer: Any, message: Words) -> None:
        """Count a lost queue or channel."""
        if message.kind in _LOSSES and message.channel != SIDE:
            self._losses[hub] += 1

    def call_sent(self, hub: Hub, peer: Any, call: Call) -> None:
        """Check each attempt of a client."""
        super().call_sent(hub, peer, call)
        if call.sent > 1:
            sent_at, losses = self._last[call]
            waited_s = self.now - sent_at
            attempt_s = self._attempt_s[hub.name] or inf
            if self._losses[hub] == losses and waited_s < attempt_s - _SLACK_S:
                self.violate(f"{call} is sent again after {waited_s:.4f} s, without a reason")
        self._last[call] = self.now, self._losses_before[hub]

    def rested(self, hub: Hub) -> None:
        """Count the losses before the next input."""
        self._losses_before[hub] = self._losses[hub]


class RunsBounded(Checker):
    """A request runs at most the allowed number of times, however many workers it crashes."""

    invariant = "I7"
    sentence = "a poison request runs at most attempts_max times, then ends with POISONED"

    def execution_started(self, execution: Execution) -> None:
        """Check each start of a handler."""
        call = execution.call
        runs, limit = len(call.executions), self.knobs.runs_max
        if limit is not None and runs > limit * max(1, call.sent):
            allowed = f"was sent {call.sent} times, for {limit} runs each"
            self.violate(f"{call} runs {runs} times; it {allowed}")


class NeverInVain(SentInTime):
    """Clients publish no request that has ended, and workers start no request whose cancel they
    have received."""

    def __init__(self, history: History) -> None:
        super().__init__(history)
        self._numbers: dict[str, int] = {}  # of the calls, by message id
        self._cancelled: defaultdict[Hub, set[int]] = defaultdict(set)
        self._new: set[int] = set()  # cancels that came with the current input

    def request_sent(self, hub: Hub, _peer: Any, message: Words) -> None:
        """Record the message id of a request."""
        call = hub.call_of(message)
        if call is not None:
            self._numbers[decode_properties(message.header).message_id] = call.number

    def request_came(self, _hub: Hub, _peer: Any, message: Words) -> None:
        """Record the cancel of a request."""
        if message.kind != methods.BASIC_DELIVER or message.channel != SIDE:
            return
        try:
            properties = decode_properties(message.header)
        except RemoteViolation:
            return
        number = self._numbers.get(properties.message_id)
        if number is not None and properties.headers.get(wire.CONTROL) == wire.Control.CANCEL:
            self._new.add(number)

    def request_taken(self, hub: Hub, _peer: Any, frames: list[bytes] | None) -> None:
        """Check a request that a worker starts."""
        task = parse_task(frames or ())
        if task is not None and task.number in self._cancelled[hub]:
            self.violate(f"{hub} starts call {task.number}, of whose cancel it has heard")

    def rested(self, hub: Hub) -> None:
        """Record, after each input, that the worker knows of its cancels."""
        self._cancelled[hub] |= self._new
        self._new.clear()

    def sent_in_vain(self, hub: Hub, _peer: Any, message: Words) -> None:
        """Report a message that is sent on a closed connection."""
        self.violate(f"{hub} sends {message[:2]!r} on a connection that has gone")


class Complete(Checker):
    """A reply comes with all its partial replies."""

    invariant = "I5"
    sentence = "partial replies are numbered without a gap, and none follows the final one"

    def ended(self, call: Call, outcome: Reply | CallError) -> None:
        """Compare the number of partial replies with the number in the final reply."""
        if not isinstance(outcome, Reply) or len(outcome.frames) < 2:
            return
        *joined, label, _ = outcome.frames
        parts = len(call.partials) + len(joined)
        if label.split()[3:] != [b"%d" % parts]:
            self.violate(f"{call} has {parts} partial replies, and ends with {label!r}")


class AckedLast(Checker):
    """A worker acknowledges a request only after RabbitMQ has confirmed the reply. Otherwise a
    worker that crashes in between would leave the request without a reply."""

    invariant = "acked-last"
    sentence = "a request is acknowledged when its reply has been confirmed"

    def acked_unanswered(self, worker: str, published: Any) -> None:
        """Report a request that was acknowledged too early."""
        self.violate(
            f"{worker} acknowledges {published.properties.correlation_id}, whose reply is not safe"
        )


class ReturnedAtOnce(Checker):
    """A returned request (no queue takes it) ends its call at once."""

    invariant = "returned"
    sentence = "without workers, the call ends with NoService at once"

    def __init__(self, history: History) -> None:
        super().__init__(history)
        self._back: dict[Call, None] = {}

    def reply_came(self, hub: Hub, _peer: Any, message: Words) -> None:
        """Record a returned request."""
        call = hub.call_of(message) if message.kind == methods.BASIC_RETURN else None
        if call is not None and call.number in self.history.open and not call.cancelled:
            self._back[call] = None

    def rested(self, hub: Hub) -> None:
        """Check, after each input, that the calls of returned requests have ended."""
        for call in self._back:
            if call not in hub.ending:
                self.violate(f"the request of {call} came back, and the call goes on")
        self._back.clear()

    def ended(self, call: Call, outcome: Reply | CallError) -> None:
        """Check, in a run without faults, that exactly the calls to a missing service end with
        `NoService`."""
        if self.knobs.lossless and isinstance(outcome, NoService) != (call.service == NOBODY):
            self.violate(f"{call} to {call.service} ends with {outcome!r}")


class DrainLosesNothing(Checker):
    """A worker that has drained has settled all its deliveries."""

    invariant = "drain"
    sentence = "a worker that drains finishes what is in hand, and leaves nothing unsettled"

    def __init__(self, history: History) -> None:
        super().__init__(history)
        # the deliveries of its current channel that a worker has neither acknowledged nor rejected
        self._unsettled: defaultdict[Hub, set[int]] = defaultdict(set)

    def request_came(self, hub: Hub, _peer: Any, message: Words) -> None:
        """Record a delivery, or the end of the channel."""
        kind, channel = message.kind, message.channel
        if kind == methods.BASIC_DELIVER and channel == WORK:
            self._unsettled[hub].add(server_methods.read_deliver(message.method))
        elif kind in (methods.CHANNEL_CLOSE, methods.CONNECTION_CLOSE) and channel != SIDE:
            self._unsettled[hub].clear()

    def channel_lost(self, hub: Hub, _peer: Any) -> None:
        """Forget the deliveries of a lost connection."""
        self._unsettled[hub].clear()

    def reply_sent(self, hub: Hub, _peer: Any, message: Words) -> None:
        """Record an acknowledgement or a rejection."""
        if message.kind in (methods.BASIC_ACK, methods.BASIC_REJECT):
            self._unsettled[hub].discard(server_methods.read_settle(message.method).tag)

    def rested(self, hub: Hub) -> None:
        """Check the deliveries of a worker that has stopped."""
        left = self._unsettled.pop(hub, None) if hub.stopped else None
        if left:
            self.violate(f"{hub} leaves with {len(left)} requests in hand")


class Heard(Checker):
    """Engines give up a silent RabbitMQ in time; without faults nobody is silent for too long."""

    invariant = "heard"
    sentence = "both sides are heard in every interval, and a silent one is gone"

    def __init__(self, history: History) -> None:
        super().__init__(history)
        self._heard_at: dict[Any, float] = {}  # by connection, without the time of freezes

    def channel_up(self, hub: Hub, peer: Any) -> None:
        """Record a new connection of a client."""
        self._heard_at.setdefault(peer, hub.now)

    def caller_up(self, hub: Hub, peer: Any) -> None:
        """Record a new connection of a worker."""
        self._heard_at.setdefault(peer, hub.now)

    def batch_came(self, hub: Hub, peer: Any) -> None:
        """Record that RabbitMQ has sent something."""
        self._heard_at[peer] = hub.now

    def rested(self, hub: Hub) -> None:
        """Check, after each input, how long RabbitMQ has been silent."""
        late_s = self.knobs.pace.timer_late_s + _TIMER_SLACK_S
        for peer in hub.places:
            silent_s = hub.now - self._heard_at[peer]
            # An engine that wakes up late may have been frozen itself, so it waits once more.
            if silent_s > 2 * self._gone_s + late_s:
                text = f"RabbitMQ, which is silent for {silent_s:.2f} s"
                self.violate(f"{hub} still waits for {text}")

    @property
    def _gone_s(self) -> float:
        gone_s: float = self.knobs.heartbeat_timeout_s / 2 * self.knobs.liveness
        return gone_s

    def silent(self, who: str, silent_s: float) -> None:
        """Check a peer that RabbitMQ gives up."""
        if self.knobs.lossless:
            self.violate(f"{who} was silent for {silent_s:.2f} s, and nothing has gone wrong")

    def sent_away(self, hub: Hub, effect: Disconnect) -> None:
        """Check why an engine gives up RabbitMQ."""
        if self.knobs.lossless:
            self.violate(f"{hub} gives RabbitMQ up, and nothing has gone wrong: {effect.reason}")


class LosesNothing(calls.LosesNothing):
    """In a run without faults every call to an existing service gets its reply."""

    def ended(self, call: Call, outcome: Reply | CallError) -> None:
        """Check the end of a call."""
        if call.service != NOBODY:
            super().ended(call, outcome)
