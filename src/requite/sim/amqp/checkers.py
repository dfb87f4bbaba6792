"""What must hold of RPC over AMQP, beside what holds for all calls (`requite.sim.checkers.calls`).

RabbitMQ gives a request to another worker when one is lost with it, whatever its caller says of
it: here I11 is about what callers publish, and I7 bounds how often each publishing may run.
"""

from __future__ import annotations

from functools import cached_property
from math import inf
from typing import Any, Final

from requite.errors import CallError, NoService
from requite.request import Reply
from requite.sim.amqp.knobs import NOBODY, AmqpKnobs
from requite.sim.amqp.server import heartbeat_s
from requite.sim.amqp.watch import Hub
from requite.sim.checkers import calls, robustness
from requite.sim.history import Call, Checker, Execution, History
from requite.sim.workload import parse_task

_SLACK_S: Final = 0.001
# The host moves its timer only for more than that.
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
    """A request is published again only when it may be, as often as it may be, and for a reason:
    the way of its reply was lost, or its try has had its time."""

    invariant = "I11"
    sentence = "a non-idempotent request is never re-sent once it may have run"

    def __init__(self, history: History) -> None:
        super().__init__(history)
        self._last: dict[int, tuple[float, int]] = {}  # when, and how many ways were lost before

    @cached_property
    def _attempt_s(self) -> dict[str, float | None]:
        return {client.name: client.attempt_s for client in self.knobs.clients}

    def request_sent(self, hub: Hub, call: Call, _message: list[bytes]) -> None:
        """Check each try of a client."""
        call.sent += 1
        if call.sent > call.tries_max:
            self.violate(f"{call} is sent {call.sent} times; {call.tries_max} are allowed")
        if call.sent > 1 and not call.idempotent:
            self.violate(f"{call} is not idempotent, may have run, and is sent again")
        if call.sent > 1:
            sent_at, ways = self._last[call.number]
            waited_s = self.now - sent_at
            attempt_s = self._attempt_s[hub.name] or inf
            if hub.ways == ways and waited_s < attempt_s - _SLACK_S:
                self.violate(f"{call} is sent again after {waited_s:.4f} s, without a reason")
        self._last[call.number] = self.now, hub.ways_before


class RunsBounded(AmqpChecker):
    """However many workers die of a request, no more than are allowed do."""

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
    """What a client publishes is neither over nor given up, and a worker starts nothing of which it
    has been told that nobody waits for it."""

    invariant = "I15"
    sentence = "expired or cancelled work never starts"

    def request_sent(self, _hub: Hub, call: Call, _message: list[bytes]) -> None:
        """Check what a client sends."""
        late_s = self.now - call.due_at
        if late_s > 0.0:
            self.violate(f"{call} is sent {late_s:.4f} s after its deadline")
        if call.cancelled or call.ended_at is not None:
            self.violate(f"{call} is sent, though nobody waits for it any more")

    def request_taken(self, hub: Hub, frames: list[bytes] | None) -> None:
        """Check what a worker starts."""
        task = None if frames is None else parse_task(frames)
        if task is not None and task.number in hub.recalled:
            self.violate(f"{hub} starts call {task.number}, of whose cancel it has heard")

    def sent_in_vain(self, hub: Hub, _peer: Any, message: list[bytes]) -> None:
        """Report what goes nowhere."""
        self.violate(f"{hub} sends {message[:2]!r} on a connection that has gone")


class Complete(AmqpChecker):
    """A reply has all its partial replies, or is none."""

    invariant = "I5"
    sentence = "partial replies are numbered without a gap, and none follows the final one"

    def ended(self, call: Call, outcome: Reply | CallError) -> None:
        """Compare what has come with what the final reply says."""
        if not isinstance(outcome, Reply) or len(outcome.frames) < 2:
            return
        *joined, label, _ = outcome.frames
        parts = len(call.partials) + len(joined)
        if label.split()[3:] != [b"%d" % parts]:
            self.violate(f"{call} has {parts} partial replies, and ends with {label!r}")


class AckedLast(AmqpChecker):
    """A request is acknowledged when RabbitMQ has its reply, and not before: else nobody would
    answer it if its worker was lost."""

    invariant = "acked-last"
    sentence = "a request is acknowledged when its reply has been confirmed"

    def acked_unanswered(self, worker: str, letter: Any) -> None:
        """Report it."""
        self.violate(f"{worker} acknowledges {letter.correlation_id}, whose reply is not safe")


class ReturnedAtOnce(AmqpChecker):
    """A request that no queue takes ends its call in the turn in which it comes back."""

    invariant = "returned"
    sentence = "where nobody is there, the call ends with NoService at once"

    def __init__(self, history: History) -> None:
        super().__init__(history)
        self._back: dict[Call, None] = {}

    def request_returned(self, _hub: Hub, call: Call | None) -> None:
        """Note what comes back."""
        if call is not None and call.number in self.history.open and not call.cancelled:
            self._back[call] = None

    def rested(self, hub: Hub) -> None:
        """Check that it has an end, of whatever came first."""
        for call in self._back:
            if call not in hub.ending:
                self.violate(f"the request of {call} came back, and the call goes on")
        self._back.clear()

    def ended(self, call: Call, outcome: Reply | CallError) -> None:
        """Check that nobody is said not to be there who is."""
        if self.knobs.lossless and isinstance(outcome, NoService) != (call.service == NOBODY):
            self.violate(f"{call} to {call.service} ends with {outcome!r}")


class Bounded(AmqpChecker):
    """Nobody has more in hand than it may."""

    invariant = "I9"
    sentence = "bounded memory: every table is back at its baseline after a drain"

    @cached_property
    def _in_hand_max(self) -> dict[str, int]:
        slots = {client.name: client.slots for client in self.knobs.clients}
        return slots | {worker.name: worker.prefetch for worker in self.knobs.workers}

    def rested(self, hub: Hub) -> None:
        """Check, after each input, what is in hand."""
        state: Any = hub.snapshot()
        in_hand = state.held + state.sent if hub.kind == "client" else state.running
        if in_hand > self._in_hand_max[hub.name]:
            self.violate(f"{hub} has {in_hand} requests in hand, more than it may")


class NoMistakes(AmqpChecker):
    """What the engines say is what AMQP allows, whatever has happened before."""

    invariant = "manners"
    sentence = "RabbitMQ never has to close a channel for what requite does wrong"

    def mistaken(self, who: str, text: str) -> None:
        """Report it."""
        self.violate(f"{who} makes RabbitMQ say {text}")


class DrainLosesNothing(AmqpChecker):
    """Who drains has answered, or given back, all that it was given."""

    invariant = "drain"
    sentence = "a worker that drains finishes what is in hand, and leaves nothing unsettled"

    def left(self, hub: Hub) -> None:
        """Check what a worker leaves."""
        if hub.owed:
            self.violate(f"{hub} leaves with {len(hub.owed)} requests in hand")


class Heard(AmqpChecker):
    """A silent RabbitMQ is given up in time, and nobody is silent without need."""

    invariant = "heard"
    sentence = "both sides are heard in every interval, and a silent one is gone"

    def rested(self, hub: Hub) -> None:
        """Check how long RabbitMQ has been silent."""
        if not hub.names:
            return
        silent_s = self.now - hub.heard_at - (hub.process.frozen_s - hub.excused_s)
        late_s = self.knobs.pace.timer_late_s + _TIMER_SLACK_S
        # Who wakes up late does not know whether it was itself that stood still: twice, at most.
        if silent_s > 2 * self._gone_s + late_s:
            self.violate(f"{hub} still waits for RabbitMQ, which is silent for {silent_s:.2f} s")

    @property
    def _gone_s(self) -> float:
        return heartbeat_s(self.knobs) / 2 * self.knobs.liveness

    def silent(self, who: str, silent_s: float) -> None:
        """Check who is given up by RabbitMQ."""
        if self.knobs.lossless:
            self.violate(f"{who} was silent for {silent_s:.2f} s, and nothing has gone wrong")

    def sent_away(self, hub: Hub, _peer: Any, reason: str) -> None:
        """Check why RabbitMQ is given up."""
        if self.knobs.lossless:
            self.violate(f"{hub} gives RabbitMQ up, and nothing has gone wrong: {reason}")


class LosesNothing(calls.LosesNothing):
    """In a run without faults every call to a service that is there gets its reply."""

    def ended(self, call: Call, outcome: Reply | CallError) -> None:
        """Check the end of a call."""
        if call.service != NOBODY:
            super().ended(call, outcome)


class NobodyNotices(robustness.NobodyNotices):
    """No exception leaves an engine, a framing or a host; nobody honest is sent away."""

    fair = ("silent", "closed", "shut")
