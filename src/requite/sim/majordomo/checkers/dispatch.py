"""Check how the broker dispatches requests: I6, I7, I15."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cached_property
from typing import Any, Final

from requite.engine import Cause
from requite.errors import CallError
from requite.request import Reply
from requite.sim.kernel.checkers.attempts import SentInTime
from requite.sim.kernel.history import Call, Checker, Execution, History, Trace

Facts = Mapping[str, Any]
_SLACK_S: Final = 0.005


class OneOwner(Checker):
    """One worker at a time owns a request, and only the owner's reply counts.

    The broker may take a request from a worker that is lost, or whose lease has expired. The
    time of a worker's last bytes shows whether it was really silent.
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
        """Reset: a new broker knows no peers."""
        self._broker = broker

    def dispatched(self, trace: Trace | None, facts: Facts) -> None:
        """Check that no worker owns the request that is dispatched."""
        if trace is not None and trace.owner is not None:
            self.violate(f"{trace} is dispatched again while {trace.owner_name} owns it")

    def worker_lost(self, facts: Facts, name: str) -> None:
        """Record the lost worker; check that a worker dropped as silent was silent."""
        now = self.history.world.now
        self._lost[facts["worker"]] = now
        if facts["cause"] is not Cause.SILENT:
            return
        silent_s = now - self._broker.hub.heard_at.get(facts["worker"], 0.0)
        if silent_s < self._silence_s.get(name, 0.0) - _SLACK_S:
            why = facts["reason"]
            self.violate(f"{name} is dropped ({why}), but sent bytes {silent_s:.3f} s ago")

    def redelivered(self, trace: Trace | None, _facts: Facts) -> None:
        """Check that the former owner has lost the request."""
        if trace is None:
            return
        now = self.history.world.now
        owner = trace.owner
        if owner is None:
            self.violate(f"{trace} is redelivered, but no worker owns it")
            return
        name = trace.owner_name
        lease_s = self._lease_s.get(name, 0.0)
        unheard_s = now - trace.vouched_at
        is_over = bool(lease_s) and unheard_s >= (trace.vouched_s or lease_s) - _SLACK_S
        if self._lost.get(owner) != now and not is_over:
            self.violate(f"{trace} is taken from {name}, which is alive, after {unheard_s:.3f} s")

    def unknown_request(self, name: str) -> None:
        """Report an event of the broker about a request that is not pending."""
        self.violate(f"the broker handles {name}, which is not pending")

    def answered(self, trace: Trace | None, facts: Facts) -> None:
        """Check that the reply comes from the owner."""
        if trace is None or facts["worker"] is None:
            return
        if trace.owner is None or facts["dispatch_id"] != trace.dispatch_id:
            owner = trace.owner_name if trace.owner else "nobody"
            self.violate(
                f"{trace} is answered by dispatch {facts['dispatch_id']}, "
                f"but {owner} owns it as dispatch {trace.dispatch_id}"
            )

    def ended(self, call: Call, outcome: Reply | CallError) -> None:
        """Check that the reply comes from a worker whose reply the broker accepted."""
        if not isinstance(outcome, Reply) or len(outcome.frames) < 2:
            return
        label = outcome.frames[-2].split()
        execution = self.history.executions.get(int(label[2])) if label[0] == b"final" else None
        if execution is not None and execution.worker not in call.answered_by:
            self.violate(f"{call} got the reply of {execution}, which no longer owned it")


class AttemptsBounded(Checker):
    """The broker dispatches a request at most `attempts_max` times."""

    invariant = "I7"
    sentence = "a poison request runs at most attempts_max times, then is listed with its reason"

    def dispatched(self, trace: Trace | None, facts: Facts) -> None:
        """Check the number of a dispatch."""
        if trace is None:
            return
        if trace.attempts >= self.knobs.attempts_max:
            self.violate(f"{trace} is dispatched too often: attempt {trace.attempts + 1}")
        if facts["attempt"] != trace.attempts + 1:
            self.violate(f"{trace}: attempt {trace.attempts + 1} is numbered {facts['attempt']}")

    def answered(self, trace: Trace | None, facts: Facts) -> None:
        """Check that a request is not poisoned too early, or without a reason."""
        if trace is None or facts["status"] != "POISONED":
            return
        if trace.attempts < self.knobs.attempts_max:
            self.violate(f"{trace} is poisoned after only {trace.attempts} attempts")
        if not facts["reason"]:
            self.violate(f"{trace} is poisoned, but no reason is given")

    def execution_started(self, execution: Execution) -> None:
        """Check that handlers start at most `attempts_max` times per request sent."""
        call = execution.call
        if len(call.executions) > call.sent * self.knobs.attempts_max:
            n = len(call.executions)
            self.violate(f"{call} was sent {call.sent} times, but started {n} times")


class NeverStartedInVain(SentInTime):
    """No client sends a request that has ended, and the broker dispatches none that it knows to be
    expired or cancelled.

    Workers are not judged: a CANCEL may still be in flight.
    """

    def __init__(self, history: History) -> None:
        super().__init__(history)
        self._broker: Any = None

    def broker_started(self, broker: Any) -> None:
        """Follow the new broker."""
        self._broker = broker

    def dispatched(self, trace: Trace | None, facts: Facts) -> None:
        """Check that the request is neither expired nor cancelled."""
        if trace is None:
            return
        late_s = self.history.world.now - trace.expires_at
        if late_s > _SLACK_S:
            self.violate(f"{trace} expired {late_s:.3f} s ago, but is dispatched")
        if trace.withdrawn:
            self.violate(f"{trace} was {trace.withdrawn}, but is dispatched")

    def answered(self, trace: Trace | None, facts: Facts) -> None:
        """Check that a request expires neither early nor late."""
        if trace is None:
            return
        late_s = self._late_s(trace)
        if late_s > self.knobs.ending_late_s:
            self.violate(f"{trace} ends as {facts['status']}, {late_s:.3f} s after it expired")
        early_s = trace.expires_at - self.history.world.now
        if facts["status"] == "EXPIRED" and early_s > _SLACK_S:
            self.violate(f"{trace} is reported as expired {early_s:.3f} s too early")

    def finished(self) -> None:
        """Check that the broker holds no expired request."""
        if self._broker is None or not self._broker.alive:
            return
        for trace in self._broker.hub.traces.values():
            if self._late_s(trace) > self.knobs.ending_late_s:
                self.violate(f"{trace} expired at {trace.expires_at:.4f} s, but is still pending")

    def not_told(self, trace: Trace) -> None:
        """Report a worker that gets no CANCEL for a request without a client."""
        self.violate(f"no client waits for {trace}, but {trace.owner_name} got no CANCEL")

    def _late_s(self, trace: Trace) -> float:
        """Return how long ago a request expired, minus the time that the broker was frozen."""
        stood_s: float = self._broker.frozen_s - trace.excused_s
        now = self.history.world.now
        return now - trace.expires_at - (stood_s if now > trace.expires_at else 0.0)
