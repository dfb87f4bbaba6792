"""A client's process, and its user who makes the planned calls."""

from __future__ import annotations

from math import inf
from typing import Any

from requite.engine import Cancel, Engine, Submit
from requite.errors import CallError
from requite.protocols.majordomo.calls import ClientPolicy
from requite.protocols.majordomo.dialects import by_version
from requite.request import Partial, Reply, RetryPolicy
from requite.sim.history import Call
from requite.sim.knobs import ClientSpec
from requite.sim.roles import Dialler, Stage
from requite.sim.watch import WatchedClient
from requite.sim.workload import CallPlan


class ClientProcess(Dialler):
    """A client, and its user who makes the planned calls."""

    watch = WatchedClient

    def __init__(self, spec: ClientSpec, stage: Stage) -> None:
        super().__init__(spec.name, spec.identity, stage)
        self.spec = spec
        self.followers: dict[int, CallPlan] = {}  # calls to make when others end, by their numbers

    def make_engine(self) -> Engine:
        """Make a client."""
        spec, knobs = self.spec, self._stage.knobs
        first = self._draw_sequence() if spec.first_sequence is None else spec.first_sequence
        policy = ClientPolicy(
            slots=spec.slots,
            retry=RetryPolicy(attempts=spec.tries, attempt_timeout=spec.attempt_timeout_s),
            heartbeat=knobs.heartbeat,
            connections_max=8,
            eager=self.rng.random() < 0.5,
        )
        dialect = by_version(spec.version)
        return self._stage.parts.client(dialect, policy, rng=self.rng.random, first_sequence=first)

    def _draw_sequence(self) -> int:
        """Draw a sequence number that is about to wrap, in every second life."""
        return (1 << 32) - 8 if self.rng.random() < 0.5 else self.rng.getrandbits(32)

    def _end(self, what: str) -> None:
        super()._end(what)
        self._stage.history.client_died(self.name)

    def call(self, plan: CallPlan) -> None:
        """Make a call, if there is anybody to make it."""
        if self.alive and not self.drained:
            self.later(0.0, self._submit, plan)

    def _submit(self, plan: CallPlan) -> None:
        now = self.world.now
        timeout_s = inf if plan.timeout_s is None else plan.timeout_s
        call = Call(
            plan.number,
            self.name,
            plan.service,
            plan.payload,
            now + timeout_s,
            plan.idempotent,
            self.spec.version == "0.3",
            b"key-%d" % plan.number if plan.number % 3 == 0 else b"",
            self.spec.tries,
            now,
            self.frozen_s,
        )
        self._stage.history.submitted(call)
        if plan.cancel_after_s is not None:
            self.later(plan.cancel_after_s, self.cancel, call)
        self.host.submit(
            Submit(
                call,
                plan.service,
                plan.frames,
                self.clock() + timeout_s,
                plan.idempotent,
                call.key,
                plan.wants_partials,
            )
        )

    def cancel(self, call: Call) -> None:
        """Give a call up, unless it has ended."""
        if call.ended_at is None:
            self._stage.history.cancelled(call)
            self.host.submit(Cancel(call))

    def deliver(self, token: Any, what: Any) -> None:
        """Take a reply."""
        history = self._stage.history
        if isinstance(what, Partial):
            history.delivered(token, what)
        else:
            assert isinstance(what, Reply)
            self._end_call(token, what)

    def fail(self, token: Any, error: CallError) -> None:
        """Take an error."""
        self._end_call(token, error)

    def _end_call(self, call: Call, outcome: Reply | CallError) -> None:
        """Note the end, and make the call that waited for it, from inside the engine's callback."""
        if self._stage.transcript is not None:
            self._stage.transcript.outcome(self.name, call, outcome)
        self._stage.history.ended(call, outcome, self.frozen_s)
        follower = self.followers.pop(call.number, None)
        if follower is not None:
            self._submit(follower)
