"""The base of all simulations: phases in order, and a result."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from hashlib import sha256
from random import Random
from traceback import format_exc
from typing import Any, ClassVar, Final, TypeAlias

from requite.errors import ConfigurationError
from requite.sim.kernel.coverage import Combination, coverage
from requite.sim.kernel.drawing import plan_faults
from requite.sim.kernel.fault_injection import Injector
from requite.sim.kernel.faults import Fault
from requite.sim.kernel.history import Checker, History
from requite.sim.kernel.knobs import RunKnobs
from requite.sim.kernel.plan import Plan
from requite.sim.kernel.process import Process
from requite.sim.kernel.result import Options, Result
from requite.sim.kernel.transcript import RUN, Describe, Entry, Show, Transcript, show_body
from requite.sim.kernel.user import BaseUser
from requite.sim.kernel.workload import CallPlan
from requite.sim.kernel.world import Stuck, World

ERROR: Final = "error"
"""Takes the place of an invariant in the violation of a run that ends with an exception."""
_LOOK_EVERY_S: Final = 0.25
_RESTART_S: Final = 1.0

Phase = Callable[[], bool]
Luck: TypeAlias = Callable[[str], Random]
"""Returns the randomness for one concern."""


class Simulation:
    """A run: its world, its history and transcript, and its phases."""

    knobs_type: ClassVar[type]
    injector: Injector
    call_type: ClassVar[type] = CallPlan

    def __init__(
        self,
        plan: Plan,
        options: Options,
        checkers: Sequence[type[Checker]],
        describe: Describe,
        show: Show = show_body,
    ) -> None:
        self.planned = plan
        self.seed = plan.seed
        self.options = options
        self.world = World(plan.seed)
        self.history = History(self.world, checkers, plan.knobs)
        self.history.stop_at = options.stop_at
        self.transcript = (
            Transcript(self.world, describe, show, heartbeats=options.heartbeats)
            if options.transcript or options.coverage
            else None
        )
        last = max((call.number for call in plan.calls), default=0)
        self.numbers = iter(range(last + 1, 1 << 30))  # for calls outside the plan
        self._knobs: RunKnobs = plan.knobs

    # --- for subclasses ---------------------------------------------------------------------------
    @staticmethod
    def draw_calls(knobs: Any, luck: Luck) -> Iterable[Any]:
        """Draw the calls of the first phase, in no particular order."""
        raise NotImplementedError

    @staticmethod
    def draw_faults(knobs: Any, luck: Luck) -> Iterable[Fault]:
        """Draw the faults of the first phase."""
        return plan_faults(knobs, luck)

    def begin(self) -> None:
        """Schedule the starts of processes, and the planned calls."""
        raise NotImplementedError

    def heal(self) -> None:
        """End all faults."""
        self.injector.end()

    def phases(self) -> Iterable[Phase]:
        """Return the phases after the faults; each returns whether to continue with the next."""
        raise NotImplementedError

    def settle_s(self) -> float:
        """Return the time in seconds in which all must settle once faults have ended (I10)."""
        raise NotImplementedError

    def unsettled(self) -> list[str]:
        """Return what has not settled yet."""
        raise NotImplementedError

    def refuse_other_faults(self) -> None:
        """Raise `ConfigurationError` if the plan has a fault that this run cannot have."""
        kinds = self.injector.kinds
        for fault in self.planned.faults:
            if fault.kind not in kinds:
                known = ", ".join(kinds)
                raise ConfigurationError(
                    f"faults: kind: there is no {str(fault.kind)!r} in this run; there are {known}"
                )

    # --- events of processes ----------------------------------------------------------------------
    def process_failed(self, process: Process, trace: str) -> None:
        """Record a process that ended with an exception."""
        self.history.tell("process_failed", process, trace)
        self.world.after(_RESTART_S, process.start)

    def process_changed(self, process: Process, what: str) -> None:
        """Record that a process started, ended, froze or thawed."""
        if self.transcript is not None:
            self.transcript.event(process.name, what)

    # --- the phases -------------------------------------------------------------------------------
    def run(self) -> None:
        """Run all phases; stop after a phase that fails."""
        try:
            self._run()
        except Stuck as stuck:
            self.history.violate("I13", f"the run does not end: {stuck}")
        except ConfigurationError:  # the plan names what does not exist
            raise
        except Exception:  # of a checker or the simulation: other seeds still run
            self.history.violate(ERROR, f"the run ends with an exception:\n{format_exc()}")

    def _run(self) -> None:
        self.begin()
        for fault in self.planned.faults:
            self.world.at(fault.at_s, self._inject, fault)
        self.world.run(self._knobs.faulty_s)
        self.remark("all faults heal")
        self.heal()
        for phase in self.phases():
            if self.world.is_stopped or not phase():
                break
        self.history.finish()

    def _inject(self, fault: Fault) -> None:
        self.remark(f"{fault.kind}, {fault.duration_s:.3f} s")
        self.injector.inject(fault)

    def plan_all(self, processes: Iterable[Process], cast: Any) -> None:
        """Schedule the starts of processes, and the planned calls."""
        rng = self.world.rng("start")
        for process in processes:
            self.world.at(rng.random() * 0.1, process.start)
        for plan in self.planned.calls:
            self.plan_call(plan, cast.client(plan.client).user)

    def plan_call(self, plan: CallPlan, user: BaseUser) -> None:
        """Schedule a call, or queue it behind the call that it follows."""
        if plan.follows is None:
            self.world.at(plan.at_s, user.call, plan)
        else:
            user.followers[plan.follows] = plan

    def wait(self, until: Callable[[], bool], limit_s: float) -> bool:
        """Run until a condition holds; return False after `limit_s`."""
        limit = self.world.now + limit_s
        while not until():
            if self.world.now >= limit:
                return False
            self.world.run(min(limit, self.world.now + _LOOK_EVERY_S))
        return True

    def settle(self) -> bool:
        """Wait until nothing is `unsettled`; report what is left after `settle_s` (I10)."""
        limit_s = self.settle_s()
        self.world.run(
            self.world.now + self.planned.knobs.network.spike_s
        )  # late messages have arrived
        self.wait(lambda: not self.unsettled(), limit_s)
        problems = self.unsettled()
        for problem in problems:
            self.history.violate("I10", f"{limit_s:.1f} s after all faults ended, {problem}")
        return not problems

    def have_ended(self, plans: Iterable[CallPlan]) -> bool:
        """Return whether the planned calls have been made, and have ended."""
        calls = self.history.calls
        return all(
            plan.number in calls and calls[plan.number].ended_at is not None for plan in plans
        )

    def outcome_of(self, plan: CallPlan) -> Any:
        """Return the outcome of a planned call; None if it has not ended."""
        call = self.history.calls.get(plan.number)
        return None if call is None else call.outcome

    def remark(self, text: str) -> None:
        """Write an action of the run itself to the transcript."""
        if self.transcript is not None:
            self.transcript.event(RUN, text)

    # --- the result -------------------------------------------------------------------------------
    def result(self, scenario: str) -> Result:
        """Return the result of the run."""
        history = self.history
        entries = self.transcript.entries if self.transcript else []
        return Result(
            self.seed,
            scenario,
            tuple(self._knobs.lines()),
            tuple(history.violations),
            *self.tally(),
            self.world.now,
            self.world.events,
            self._digest(),
            tuple(entries) if self.options.transcript else (),
            self._coverage(entries) if self.options.coverage else {},
        )

    def tally(self) -> tuple[int, dict[str, int]]:
        """Return the number of calls, and how often they had each outcome."""
        return len(self.history.calls), dict(sorted(self.history.outcomes.items()))

    def _coverage(self, entries: Sequence[Entry]) -> Counter[Combination]:
        return coverage(self.planned.faults, self._knobs.faulty_s, entries)

    def lines(self) -> Iterable[str]:
        """Return the lines of the digest: equal for equal runs."""
        for call in self.history.calls.values():
            yield f"{call.number} {call.ended_at!r} {call.outcome!r} {len(call.executions)}\n"

    def _digest(self) -> str:
        digest = sha256(f"{self.world.events} {self.world.now!r}".encode())
        for line in self.lines():
            digest.update(line.encode())
        return digest.hexdigest()[:16]
