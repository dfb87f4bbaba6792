"""Check RPC over AMQP, in addition to the checks of all calls (`kernel.checkers.calls`).

RabbitMQ redelivers a request when its worker is lost, even one that is not idempotent. So I11
restricts only what callers publish, and I7 bounds how often each published request may run.
"""

from __future__ import annotations

from functools import cached_property
from math import inf
from typing import Any, Final

from requite.engine import Disconnect
from requite.errors import CallError, NoService
from requite.request import Reply
from requite.sim.amqp.knobs import NOBODY, AmqpKnobs
from requite.sim.amqp.watch import Hub
from requite.sim.kernel.checkers import calls
from requite.sim.kernel.history import Call, Checker, Execution, History
from requite.sim.kernel.workload import parse_task

_SLACK_S: Final = 0.001
# The host re-arms its timer only for differences of more than that.
_TIMER_SLACK_S: Final = 0.005


class AmqpChecker(Checker):
    """A checker of RPC over AMQP."""

    @property
    def knobs(self) -> AmqpKnobs:
        """The knobs of the run."""
        knobs: AmqpKnobs = self.history.knobs
        return knobs

    @property
    def now(self) -> float:
        """The world's time."""
        return self.history.world.now


class SentOnce(AmqpChecker):
    """A client publishes a request again only if it is idempotent, within the limit, and for a
    reason: the reply path was lost, or the attempt timed out."""

    invariant = "I11"
    sentence = "a non-idempotent request is never re-sent once it may have run"

    def __init__(self, history: History) -> None:
        super().__init__(history)
        self._last: dict[
            int, tuple[float, int]
        ] = {}  # the time of the last attempt, and the losses before it

    @cached_property
    def _attempt_s(self) -> dict[str, float | None]:
        return {client.name: client.attempt_s for client in self.knobs.clients}

    def request_sent(self, hub: Hub, call: Call, _message: list[bytes]) -> None:
        """Check each attempt of a client."""
        call.sent += 1
        if call.sent > call.tries_max:
            self.violate(f"{call} is sent {call.sent} times; {call.tries_max} are allowed")
        if call.sent > 1 and not call.idempotent:
            self.violate(f"{call} is not idempotent, may have run, and is sent again")
        if call.sent > 1:
            sent_at, losses = self._last[call.number]
            waited_s = self.now - sent_at
            attempt_s = self._attempt_s[hub.name] or inf
            if hub.reply_path_losses == losses and waited_s < attempt_s - _SLACK_S:
                self.violate(f"{call} is sent again after {waited_s:.4f} s, without a reason")
        self._last[call.number] = self.now, hub.losses_before


class RunsBounded(AmqpChecker):
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


class NeverInVain(AmqpChecker):
    """Clients publish no request that has ended, and workers start no request whose cancel they
    have received."""

    invariant = "I15"
    sentence = "expired or cancelled work never starts"

    def request_sent(self, _hub: Hub, call: Call, _message: list[bytes]) -> None:
        """Check a request that a client publishes."""
        late_s = self.now - call.due_at
        if late_s > 0.0:
            self.violate(f"{call} is sent {late_s:.4f} s after its deadline")
        if call.cancelled or call.ended_at is not None:
            self.violate(f"{call} is sent, though nobody waits for it any more")

    def request_taken(self, hub: Hub, frames: list[bytes] | None) -> None:
        """Check a request that a worker starts."""
        task = None if frames is None else parse_task(frames)
        if task is not None and task.number in hub.cancelled:
            self.violate(f"{hub} starts call {task.number}, of whose cancel it has heard")

    def sent_in_vain(self, hub: Hub, _peer: Any, message: list[bytes]) -> None:
        """Report a message that is sent on a closed connection."""
        self.violate(f"{hub} sends {message[:2]!r} on a connection that has gone")


class Complete(AmqpChecker):
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


class AckedLast(AmqpChecker):
    """A worker acknowledges a request only after RabbitMQ has confirmed the reply. Otherwise a
    worker that crashes in between would leave the request without a reply."""

    invariant = "acked-last"
    sentence = "a request is acknowledged when its reply has been confirmed"

    def acked_unanswered(self, worker: str, published: Any) -> None:
        """Report a request that was acknowledged too early."""
        self.violate(
            f"{worker} acknowledges {published.properties.correlation_id}, whose reply is not safe"
        )


class ReturnedAtOnce(AmqpChecker):
    """A returned request (no queue takes it) ends its call at once."""

    invariant = "returned"
    sentence = "without workers, the call ends with NoService at once"

    def __init__(self, history: History) -> None:
        super().__init__(history)
        self._back: dict[Call, None] = {}

    def request_returned(self, _hub: Hub, call: Call | None) -> None:
        """Record a returned request."""
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


class Bounded(AmqpChecker):
    """No engine has more requests in hand than allowed."""

    invariant = "I9"
    sentence = "bounded memory: every table is back at its baseline after a drain"

    @cached_property
    def _in_hand_max(self) -> dict[str, int]:
        slots = {client.name: client.slots for client in self.knobs.clients}
        return slots | {worker.name: worker.prefetch for worker in self.knobs.workers}

    def rested(self, hub: Hub) -> None:
        """Check the number of requests in hand after each input."""
        state: Any = hub.snapshot()
        in_hand = state.held + state.sent if hub.kind == "client" else state.running
        if in_hand > self._in_hand_max[hub.name]:
            self.violate(f"{hub} has {in_hand} requests in hand, more than it may")


class DrainLosesNothing(AmqpChecker):
    """A worker that has drained has settled all its deliveries."""

    invariant = "drain"
    sentence = "a worker that drains finishes what is in hand, and leaves nothing unsettled"

    def left(self, hub: Hub) -> None:
        """Check the deliveries of a worker that stops."""
        if hub.unsettled:
            self.violate(f"{hub} leaves with {len(hub.unsettled)} requests in hand")


class Heard(AmqpChecker):
    """Engines give up a silent RabbitMQ in time; without faults nobody is silent for too long."""

    invariant = "heard"
    sentence = "both sides are heard in every interval, and a silent one is gone"

    def rested(self, hub: Hub) -> None:
        """Check, after each input, how long RabbitMQ has been silent."""
        if not hub.names:
            return
        silent_s = self.now - hub.last_heard_at - (hub.process.frozen_s - hub.frozen_before_s)
        late_s = self.knobs.pace.timer_late_s + _TIMER_SLACK_S
        # An engine that wakes up late may have been frozen itself, so it waits once more.
        if silent_s > 2 * self._gone_s + late_s:
            self.violate(f"{hub} still waits for RabbitMQ, which is silent for {silent_s:.2f} s")

    @property
    def _gone_s(self) -> float:
        return self.knobs.heartbeat_timeout_s / 2 * self.knobs.liveness

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
