"""A run of the real shells: its phases and its checkers."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any, Final

from requite.broker import Broker
from requite.request import Reply
from requite.sim.kernel import virtual
from requite.sim.kernel.checkers.calls import (
    EndsOnce,
    HonestErrors,
    LosesNothing,
    NeverRepeated,
    OwnReply,
    PartialsInOrder,
)
from requite.sim.kernel.checkers.robustness import NobodyNotices
from requite.sim.kernel.fault_injection import FaultInjector
from requite.sim.kernel.history import Checker
from requite.sim.kernel.knobs import Behaviour
from requite.sim.kernel.parties import handler_s_max, reconnect_s
from requite.sim.kernel.plan import Plan
from requite.sim.kernel.result import Options
from requite.sim.kernel.simulation import Luck, Phase, Simulation
from requite.sim.kernel.workload import CallPlan, draw_calls, plain_call
from requite.sim.shells.cast import ShellCast
from requite.sim.shells.clients import FETCH_S
from requite.sim.shells.knobs import SERVICES, Handler, ShellKnobs, Transport
from requite.sim.shells.stage import Member, ShellParts, ShellStage, brokers

_PROBE_S: Final = 15.0
_LEAVE_S: Final = 30.0
_IDLE_S: Final = 2.5  # longer than the hang of a handler
# The longest reconnect pauses (`requite.backoff`).
_PAUSES_S: Final = 12.0
_PLAIN: Final = [name for name, kind in SERVICES.items() if kind is not Handler.GENERATOR]
_PARTS: Final = [name for name, kind in SERVICES.items() if kind is Handler.GENERATOR]


SHELL_CHECKERS: Final[tuple[type[Checker], ...]] = (
    EndsOnce,
    OwnReply,
    PartialsInOrder,
    NeverRepeated,
    HonestErrors,
    NobodyNotices,
    LosesNothing,
)


class ShellSimulation(Simulation):
    """A run with clients, workers, and the processes between them."""

    knobs_type = ShellKnobs

    def __init__(self, plan: Plan, options: Options) -> None:
        super().__init__(plan, options, SHELL_CHECKERS, lambda _sender, _message: "")
        self.knobs: ShellKnobs = plan.knobs
        self.cast = ShellCast(ShellStage.of(self, ShellParts))
        self.injector = FaultInjector(self.cast)
        self._place = brokers(self.knobs)  # where durable requests are in the end

    @staticmethod
    def draw_calls(knobs: ShellKnobs, luck: Luck) -> Iterable[CallPlan]:
        """Draw the calls, and the service of each."""
        rng = luck("services")
        for plan in draw_calls(knobs, luck("calls"), _may_be_endless(knobs)):
            yield (
                _at_service(plan, knobs, rng.choice(_PLAIN), rng.random())
                if knobs.has_services
                else plan
            )

    # --- the run ----------------------------------------------------------------------------------
    def run(self) -> None:
        """Run all phases with virtual clock and seeded randomness."""
        with virtual.quiet(), virtual.world(self.world):
            super().run()
            for member in self.cast.members:
                member.discard()

    def begin(self) -> None:
        """Schedule the starts of processes, and the planned calls."""
        self.plan_all(self.cast.members, self.cast)

    def heal(self) -> None:
        """End all faults. With a replica, first crash the primary broker for good."""
        if self.knobs.transport is Transport.REPLICA:
            self._place = self.cast.lose_primary()
        self.injector.end()

    def phases(self) -> Iterable[Phase]:
        """Return the phases after the faults."""
        cast = self.cast
        return (
            self._settle,
            self._ask,
            self._fetch,
            lambda: self._terminate("clients", cast.clients),
            self._find_nothing,
            self._end_pool,
            lambda: self._terminate("workers", cast.workers),
            lambda: self._terminate("middle", cast.middle),
        )

    def _settle(self) -> bool:
        """Check that every call ends (I10)."""
        limit_s = settle_s(self.knobs)
        # Processes that were frozen make their calls meanwhile.
        self.world.run(self.world.now + 1.0)
        if self.wait(lambda: not self.history.open, limit_s):
            # A dead connection can cost a call its only attempt; wait until all are detected.
            self.world.run(self.world.now + reconnect_s(self.knobs.network))
            self._wait_until_idle()
            return True
        for call in self.history.open.values():
            text = f"{limit_s:.1f} s after all faults have healed, {call} has not ended"
            self.history.violate("I10", text)
        return False

    def _wait_until_idle(self) -> None:
        """Wait until the workers have finished requests whose calls have ended."""
        workers, executions = self.cast.workers, self.history.executions
        for _ in range(self.knobs.calls):
            before = len(executions)
            self.world.run(self.world.now + _IDLE_S)
            if len(executions) == before and not any(worker.running for worker in workers):
                break

    def _fetch(self) -> bool:
        """Check that the reply to every acknowledged durable request can be fetched (I3)."""
        if not self.knobs.is_durable:
            return True
        client = self.cast.clients[0]
        tickets = client.stage.tickets
        self.remark(f"{len(tickets)} replies are fetched from {self._place}")
        promotes = self.knobs.transport is Transport.REPLICA
        task = client.loop.create_task(client.user.fetch_all(self._place, promotes))
        self.wait(task.done, FETCH_S * (len(tickets) + 1))
        found = task.result() if task.done() else {}
        for ticket, call in tickets.items():
            outcome = found.get(ticket)
            label = b"final %d " % call.number
            if not isinstance(outcome, Reply) or not outcome.frames[0].startswith(label):
                text = f"{call} was acknowledged, but fetching its reply gives {outcome!r}"
                self.history.violate("I3", text)
        return True

    def _ask(self) -> bool:
        """Check that every client gets replies from every service (I10)."""
        if self.knobs.transport is Transport.REPLICA:
            return True  # the replica serves only once `_fetch` promotes it
        self.remark("every client calls")
        limit_s = reconnect_s(self.knobs.network) + _PAUSES_S + self._busy_s()
        self.wait(lambda: all(client.is_open for client in self.cast.clients), limit_s)
        for client in self.cast.clients:
            probes = [*self._probes(client.name, limit_s)]
            for plan in probes:
                client.user.call(plan)
            self.wait(lambda probes=probes: self.have_ended(probes), limit_s + _PROBE_S)  # type: ignore[misc]
            for plan in probes:
                outcome = self.outcome_of(plan)
                if not isinstance(outcome, Reply):
                    text = f"{plan.client} calls {plan.service} and gets {outcome!r}"
                    self.history.violate("I10", f"with all faults healed, {text}")
        return not self.history.open

    def _busy_s(self) -> float:
        """The time in seconds for which workers may be busy with requests whose calls have
        ended."""
        handler_s = handler_s_max(self.knobs.service_s, self.knobs.behaviours)
        return (self.knobs.calls + 10) * handler_s if self.knobs.retries else handler_s

    def _probes(self, client: str, limit_s: float) -> Iterator[CallPlan]:
        names = (
            [*self.knobs.services]
            if self.knobs.is_live
            else _PLAIN
            if self.knobs.is_durable
            else [""]
        )
        for name in names:
            plan = plain_call(client, next(self.numbers), limit_s, at_s=self.world.now)
            yield plan._replace(service=name)

    def _find_nothing(self) -> bool:
        """Check that brokers hold no request once the clients have exited (I9)."""
        left = [*self._left_at_brokers()]
        self.wait(lambda: not [*self._left_at_brokers()], _LEAVE_S)
        left = [*self._left_at_brokers()]
        for what in left:
            self.history.violate("I9", what)
        return not left

    def _left_at_brokers(self) -> Iterator[str]:
        for middle in self.cast.middle:
            if middle.alive and isinstance(middle.daemon, Broker):
                state = middle.daemon.snapshot()
                if state.pending:
                    yield f"{middle.name} still holds {state.pending} requests"

    def _end_pool(self) -> bool:
        """Check that the manager of a pool stops unused groups; then terminate the managers
        (I9)."""
        if self.knobs.transport is not Transport.POOL:
            return True
        workers = self.cast.workers
        limit_s = self.knobs.unused_s + _LEAVE_S
        if self.wait(lambda: not any(worker.alive for worker in workers), limit_s):
            return self._terminate("managers", self.cast.middle[1:])
        alive = ", ".join(worker.name for worker in workers if worker.alive)
        self.history.violate("I9", f"{alive}: unused for {limit_s:g} s, but not stopped")
        return False

    def _terminate(self, who: str, members: Sequence[Member]) -> bool:
        """Send SIGTERM to programs; check that they exit without pending tasks and timers (I9)."""
        self.remark(f"the {who} get SIGTERM")
        for member in members:
            member.retired = True
            member.drain()
        gone = self.wait(lambda: not any(member.alive for member in members), _LEAVE_S)
        if not gone:
            self.history.violate("I9", f"one of the {who} does not end when it gets SIGTERM")
        for member in (each for each in members if each.has_exited):
            for what in member.loop.left():
                self.history.violate("I9", f"{member.name} has ended, and leaves {what}")
        return gone


def _may_be_endless(knobs: ShellKnobs) -> Any:
    """Return whether a call may have no deadline: only if the protocol reports every failure."""
    return lambda _client, behaviour, _idempotent: (
        knobs.has_services and behaviour in (Behaviour.ECHO, Behaviour.STREAM, Behaviour.FAIL)
    )


def _at_service(plan: CallPlan, knobs: ShellKnobs, name: str, lot: float) -> CallPlan:
    names = dict(zip(SERVICES, knobs.services, strict=True))
    if plan.behaviour is not Behaviour.STREAM:
        return plan._replace(service=names[name])
    return plan._replace(service=names[_PARTS[0]], wants_partials=lot < 0.5)


def settle_s(knobs: ShellKnobs) -> float:
    """Return the time in seconds in which all must settle once faults have ended (I10).

    It adds up what may happen one after the other: a dead connection is detected and replaced,
    silent peers are given up, deadlines pass, and calls without a deadline are retried and served.
    """
    tries = max(client.tries for client in knobs.clients)
    attempts_s = tries * (knobs.service_grace_s + 2.5)
    work_s = knobs.calls * (0.1 + handler_s_max(knobs.service_s, knobs.behaviours))
    presence_s = 4 * knobs.silence_s + 1.5 * knobs.timeout_s
    return reconnect_s(knobs.network) + _PAUSES_S + presence_s + attempts_s + work_s
