"""The phases of runs whose processes are all parties (`requite.sim.kernel.party`).

First there are calls and faults. After the faults, everything must settle, every probe call must
get a reply, and all parties drain, one kind after the other, without leaving any state.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any, Final, Protocol

from requite.request import Reply
from requite.sim.kernel.fault_injection import FaultInjector
from requite.sim.kernel.knobs import Behaviour
from requite.sim.kernel.medium import Shape
from requite.sim.kernel.party import BaseParty
from requite.sim.kernel.simulation import Simulation
from requite.sim.kernel.workload import CallPlan

PROBE_S: Final = 15.0
LEAVE_S: Final = 10.0
HANG_S: Final = 2.0  # how long a handler hangs that is not abandoned


class Cast(Protocol):
    """All processes of a run."""

    @property
    def parties(self) -> Sequence[BaseParty[Any]]:
        """All honest parties, in the order of their start."""

    def client(self, name: str) -> Any:
        """Return the client of that name."""


class PartiesSimulation(Simulation):
    """A run of parties; subclasses create cast and injector, and order the drains in `phases`."""

    knobs: Any
    cast: Any
    injector: FaultInjector

    # --- for subclasses ---------------------------------------------------------------------------
    def not_settled(self) -> list[str]:
        """Return where the processes disagree about live peers and connections."""
        raise NotImplementedError

    def left_after_calls(self) -> list[str]:
        """Return what any party still holds when no calls are left."""
        raise NotImplementedError

    def left_after_drain(self, party: Any) -> Iterable[str]:
        """Return the tables in which a drained party differs from an unused one."""
        raise NotImplementedError

    def probes(self, client: str) -> int:
        """Return how many probe calls a client makes, so that all paths are used."""
        raise NotImplementedError

    def probe(self, client: str, number: int) -> CallPlan:
        """Return a call that must be answered within `PROBE_S` once faults have ended."""
        raise NotImplementedError

    def may_be_lost(self, _plan: CallPlan, _outcome: object) -> bool:
        """Whether a probe may end with this outcome without a violation."""
        return False

    # --- the beginning ----------------------------------------------------------------------------
    def begin(self) -> None:
        """Schedule the starts of all parties, and the planned calls."""
        self.plan_all(self.cast.parties, self.cast)

    # --- liveness (I10) ---------------------------------------------------------------------------
    def unsettled(self) -> list[str]:
        """Return what has not settled yet."""
        problems = [f"{call} has not ended" for call in self.history.open.values()]
        return problems or self.not_settled() or self.left_after_calls()

    def ask(self) -> bool:
        """Probe: every client must get replies, on every path."""
        self.remark("every client calls")
        probes = [plan for client in self.knobs.clients for plan in self._plan_probes(client.name)]
        self.wait(lambda: self.have_ended(probes), PROBE_S * (len(probes) + 1))
        for plan in probes:
            outcome = self.outcome_of(plan)
            if not isinstance(outcome, Reply) and not self.may_be_lost(plan, outcome):
                text = f"{plan.client} calls and gets {outcome!r}"
                self.history.violate("I10", f"after all faults have ended, {text}")
        return not self.history.open

    def _plan_probes(self, client: str) -> Iterator[CallPlan]:
        """Make calls, one at a time."""
        user, before = self.cast.client(client).user, None
        for _ in range(self.probes(client)):
            plan = self.probe(client, next(self.numbers))._replace(follows=before)
            self.plan_call(plan, user)
            yield plan
            before = plan.number

    # --- bounded memory (I9) ----------------------------------------------------------------------
    def left_in_the_end(self, limit_s: float) -> list[str]:
        """Return what is left after `limit_s`; until then a resent request may still run."""
        self.wait(lambda: not self.left_after_calls(), limit_s)
        return self.left_after_calls()

    def wait_until_alone(self, parties: Sequence[BaseParty[Any]]) -> None:
        """Wait until the parties have no connections."""
        self.wait(lambda: not any(party.streams for party in parties), LEAVE_S)

    def drain_all(self, who: str, parties: Sequence[BaseParty[Any]], left: list[str]) -> bool:
        """Drain some parties; report what was `left` before, and what is left afterwards."""
        self.remark(f"the {who} leave")
        for party in parties:
            party.retired = True
            party.drain()
        if not self.wait(lambda: not any(party.alive for party in parties), LEAVE_S):
            left.append(f"one of the {who} does not exit after a drain")
        left += [what for party in parties for what in self.left_after_drain(party)]
        for what in left:
            self.history.violate("I9", what)
        return not left


# --- how long things take -------------------------------------------------------------------------
def reconnect_s(network: Shape) -> float:
    """Return the time in seconds in which a dead connection is detected and replaced."""
    return network.keepalive_s + network.retransmit_s + 2 * network.connect_timeout_s + 12


def handler_s_max(service_s: float, behaviours: Sequence[Behaviour]) -> float:
    """Return the longest run of a handler in seconds: five partial replies at three times the
    knob's service time each, or a hang."""
    return max(15 * service_s, HANG_S if Behaviour.HANG in behaviours else 0.0)
