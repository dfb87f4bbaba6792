"""What the broker may do with a request: I6, I7, I15."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cached_property
from typing import Any, Final

from requite.errors import CallError
from requite.request import Reply
from requite.sim.history import Call, Checker, Execution, History, Trace

Facts = Mapping[str, Any]
_SLACK_S: Final = 0.005


class OneOwner(Checker):
    """A request belongs to one worker at a time, and only its answer counts.

    A request may be taken from a worker that is lost, and from one whose lease is over. Whether a
    worker that is said to be silent really was, is told by when its bytes last came in.
    """

    invariant = "I6"
    sentence = "one unexpired owner per request; replies of former owners are dropped"

    def __init__(self, history: History) -> None:
        super().__init__(history)
        self._lost: dict[bytes, float] = {}
        self._broker: Any = None

    @cached_property
    def _silence_s(self) -> dict[str, float]:
        silence_s: dict[str, float] = self.knobs.silence_s
        return silence_s

    @cached_property
    def _lease_s(self) -> dict[str, float]:
        return {worker.name: worker.lease_s for worker in self.knobs.workers}

    def broker_started(self, broker: Any) -> None:
        """Begin anew: a new broker knows nobody."""
        self._broker = broker

    def dispatched(self, trace: Trace | None, facts: Facts) -> None:
        """Check that nobody owns what is handed out."""
        if trace is not None and trace.owner is not None:
            self.violate(f"{trace} is handed out again while {trace.owner_name} has it")

    def worker_lost(self, facts: Facts, name: str) -> None:
        """Note who may lose requests; check that a silent worker was silent."""
        now = self.history.world.now
        self._lost[facts["worker"]] = now
        if "silent" not in facts["reason"]:
            return
        silent_s = now - self._broker.watched.heard_at.get(facts["worker"], 0.0)
        if silent_s < self._silence_s.get(name, 0.0) - _SLACK_S:
            self.violate(f"{name} is dropped as silent, but was heard {silent_s:.3f} s ago")

    def redelivered(self, trace: Trace | None, _facts: Facts) -> None:
        """Check that the former owner has lost the request."""
        if trace is None:
            return
        now = self.history.world.now
        owner = trace.owner
        if owner is None:
            self.violate(f"{trace} is taken back, but nobody has it")
            return
        name = trace.owner_name
        lease_s = self._lease_s.get(name, 0.0)
        unheard_s = now - trace.vouched_at
        is_over = bool(lease_s) and unheard_s >= (trace.vouched_s or lease_s) - _SLACK_S
        if self._lost.get(owner) != now and not is_over:
            self.violate(f"{trace} is taken from {name}, which lives, after {unheard_s:.3f} s")

    def unknown_request(self, name: str) -> None:
        """Check that the broker moves nothing that has ended, or has never been."""
        self.violate(f"the broker moves {name}, which is not pending")

    def answered(self, trace: Trace | None, facts: Facts) -> None:
        """Check that the answer comes from the owner."""
        if trace is None or facts["worker"] is None:
            return
        if trace.owner is None or facts["dispatch_id"] != trace.dispatch_id:
            owner = trace.owner_name if trace.owner else "nobody"
            self.violate(
                f"{trace} is answered by dispatch {facts['dispatch_id']}, "
                f"but {owner} has it as {trace.dispatch_id}"
            )

    def ended(self, call: Call, outcome: Reply | CallError) -> None:
        """Check that the reply that the user gets is of a worker that the broker heard out."""
        if not isinstance(outcome, Reply) or len(outcome.frames) < 2:
            return
        label = outcome.frames[-2].split()
        execution = self.history.executions.get(int(label[2])) if label[0] == b"final" else None
        if execution is not None and execution.worker not in call.answered_by:
            self.violate(f"{call} got the reply of {execution}, which did not own it any more")


class AttemptsBounded(Checker):
    """Each request the broker accepts is handed out so often, and no more."""

    invariant = "I7"
    sentence = "a poison request runs at most attempts_max times, then is listed with its reason"

    def dispatched(self, trace: Trace | None, facts: Facts) -> None:
        """Check the number of a dispatch."""
        if trace is None:
            return
        if trace.attempts >= self.knobs.attempts_max:
            self.violate(f"{trace} is handed out for the {trace.attempts + 1}. time")
        if facts["attempt"] != trace.attempts + 1:
            self.violate(f"{trace}: attempt {trace.attempts + 1} is numbered {facts['attempt']}")

    def answered(self, trace: Trace | None, facts: Facts) -> None:
        """Check that nothing is called poisonous too soon, or without a reason."""
        if trace is None or facts["status"] != "POISONED":
            return
        if trace.attempts < self.knobs.attempts_max:
            self.violate(f"{trace} is called poisonous after {trace.attempts} attempts")
        if not facts["reason"]:
            self.violate(f"{trace} is poisonous, and nobody says why")

    def execution_started(self, execution: Execution) -> None:
        """Check that handlers do not start more often than the broker says."""
        call = execution.call
        if len(call.executions) > call.sent * self.knobs.attempts_max:
            n = len(call.executions)
            self.violate(f"{call} was sent {call.sent} times, and has started {n} times")


class NeverStartedInVain(Checker):
    """As the broker knows it when it decides: a worker cannot know what is on its way."""

    invariant = "I15"
    sentence = "expired or cancelled work never starts"

    def __init__(self, history: History) -> None:
        super().__init__(history)
        self._broker: Any = None

    def broker_started(self, broker: Any) -> None:
        """Begin anew."""
        self._broker = broker

    def dispatched(self, trace: Trace | None, facts: Facts) -> None:
        """Check what is handed out."""
        if trace is None:
            return
        late_s = self.history.world.now - trace.expires_at
        if late_s > _SLACK_S:
            self.violate(f"{trace} expired {late_s:.3f} s ago, and is handed out")
        if trace.withdrawn:
            self.violate(f"{trace} was {trace.withdrawn}, and is handed out")

    def answered(self, trace: Trace | None, facts: Facts) -> None:
        """Check that expiry comes neither early nor late."""
        if trace is None:
            return
        late_s = self._late_s(trace)
        if late_s > self.knobs.ending_late_s:
            self.violate(f"{trace} ends as {facts['status']}, {late_s:.3f} s after it expired")
        early_s = trace.expires_at - self.history.world.now
        if facts["status"] == "EXPIRED" and early_s > _SLACK_S:
            self.violate(f"{trace} is called expired {early_s:.3f} s before it is")

    def finished(self) -> None:
        """Check that nothing expired is still there."""
        if self._broker is None or not self._broker.alive:
            return
        for trace in self._broker.watched.traces.values():
            if self._late_s(trace) > self.knobs.ending_late_s:
                self.violate(f"{trace} expired at {trace.expires_at:.4f} s, and is still there")

    def sent(self, call: Call) -> None:
        """Check what a client sends."""
        late_s = self.history.world.now - call.due_at
        if late_s > 0.0:
            self.violate(f"{call} is sent {late_s:.4f} s after its deadline")

    def not_told(self, trace: Trace) -> None:
        """Report a worker that goes on in vain."""
        self.violate(f"nobody waits for {trace} any more, and {trace.owner_name} is not told")

    def _late_s(self, trace: Trace) -> float:
        """Return how long ago a request expired, without the time that the broker stood still."""
        stood_s: float = self._broker.frozen_s - trace.excused_s
        now = self.history.world.now
        return now - trace.expires_at - (stood_s if now > trace.expires_at else 0.0)
