"""The user of a client: makes the planned calls, and receives their outcomes."""

from __future__ import annotations

from collections.abc import Callable
from math import inf
from typing import TYPE_CHECKING, Any

from requite.engine import Cancel, Submit
from requite.errors import CallError
from requite.request import Partial, Reply
from requite.sim.kernel.history import Call

if TYPE_CHECKING:
    from requite.sim.kernel.engine_process import EngineProcess
    from requite.sim.kernel.history import History
    from requite.sim.kernel.process import Process
    from requite.sim.kernel.transcript import Transcript
    from requite.sim.kernel.workload import CallPlan


class BaseUser:
    """Makes the calls of one client, and reports their outcomes to the history.

    `tries_max`: the most attempts of a call; `carries_idempotency`: the protocol carries whether a
    call is idempotent; `has_keys`: some calls have an idempotency key.
    """

    def __init__(
        self,
        process: Process,
        history: History,
        transcript: Transcript | None,
        *,
        tries_max: int,
        carries_idempotency: bool,
        has_keys: bool,
    ) -> None:
        self.followers: dict[int, CallPlan] = {}  # calls to make when another ends, by its number
        self._process = process
        self._history = history
        self._transcript = transcript
        self._tries_max = tries_max
        self._carries_idempotency = carries_idempotency
        self._has_keys = has_keys

    # --- for subclasses ---------------------------------------------------------------------------
    def submit(self, call: Call, plan: CallPlan, timeout_s: float) -> None:
        """Submit a call to the client; `timeout_s` may be `inf`."""
        raise NotImplementedError

    def cancel(self, call: Call) -> None:
        """Give a call up, unless it has ended."""
        raise NotImplementedError

    # --- calls ------------------------------------------------------------------------------------
    def call(self, plan: CallPlan) -> None:
        """Make a call, if the client is alive."""
        process = self._process
        if process.alive and not process.drained:
            process.later(0.0, self._submit, plan)

    def _submit(self, plan: CallPlan) -> None:
        timeout_s = inf if plan.timeout_s is None else plan.timeout_s
        call = self._call(plan, timeout_s)
        self._history.submitted(call)
        if plan.cancel_after_s is not None:
            self._process.later(plan.cancel_after_s, self.cancel, call)
        self.submit(call, plan, timeout_s)

    def _call(self, plan: CallPlan, timeout_s: float) -> Call:
        now = self._process.world.now
        return Call(
            plan.number,
            self._process.name,
            plan.service,
            plan.payload,
            now + timeout_s,
            plan.idempotent,
            self._carries_idempotency,
            self._key(plan),
            self._tries_max,
            now,
            self._process.frozen_s,
        )

    def _key(self, plan: CallPlan) -> bytes:
        if plan.key:
            return plan.key.encode()
        return b"key-%d" % plan.number if self._has_keys and plan.number % 3 == 0 else b""

    def end(self, call: Call, outcome: Reply | CallError) -> None:
        """Record the end, and make the call that follows it at once."""
        if self._transcript is not None:
            self._transcript.outcome(self._process.name, call, outcome)
        self._history.ended(call, outcome, self._process.frozen_s)
        follower = self.followers.pop(call.number, None)
        if follower is not None:
            self._submit(follower)


class User(BaseUser):
    """The user of an engine. `frames_of` returns the body of a call. `soon`: the calls of one turn
    are submitted together at its end."""

    _process: EngineProcess

    def __init__(
        self,
        process: EngineProcess,
        history: History,
        transcript: Transcript | None,
        frames_of: Callable[[CallPlan], list[bytes]],
        *,
        tries_max: int,
        carries_idempotency: bool,
        has_keys: bool,
        soon: bool = False,
    ) -> None:
        super().__init__(
            process,
            history,
            transcript,
            tries_max=tries_max,
            carries_idempotency=carries_idempotency,
            has_keys=has_keys,
        )
        self._frames_of = frames_of
        self._soon = soon

    def submit(self, call: Call, plan: CallPlan, timeout_s: float) -> None:
        """Submit a call to the engine."""
        process = self._process
        submit = process.host.submit_soon if self._soon else process.host.submit
        submit(
            Submit(
                call,
                plan.service,
                self._frames_of(plan),
                process.clock() + timeout_s,
                plan.idempotent,
                call.key,
                plan.wants_partials,
            )
        )

    def cancel(self, call: Call) -> None:
        """Give a call up, unless it has ended."""
        if call.ended_at is None:
            self._process.host.submit(Cancel(call))  # it first submits the deferred calls
            self._history.cancelled(call)

    def deliver(self, token: Any, what: Any) -> None:
        """Receive a reply."""
        if isinstance(what, Partial):
            self._history.delivered(token, what)
        else:
            assert isinstance(what, Reply)
            self.end(token, what)

    def fail(self, token: Any, error: CallError) -> None:
        """Receive an error."""
        self.end(token, error)
