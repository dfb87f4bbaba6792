"""A run of processes that are all parties (`requite.sim.party`): what such runs have in common.

First there are calls and faults. Then, with all faults healed, everything has to settle, everybody
who asks gets a reply, and all leave, one kind after the other, with nothing left behind.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any, Final, Protocol

from requite.request import Reply
from requite.sim.knobs import Behaviour
from requite.sim.medium import Shape
from requite.sim.party import BaseParty
from requite.sim.simulation import Simulation
from requite.sim.trouble import Trouble
from requite.sim.workload import CallPlan

PROBE_S: Final = 15.0
LEAVE_S: Final = 10.0
HANG_S: Final = 2.0  # how long a handler hangs that nobody gives up


class Cast(Protocol):
    """All processes of a run."""

    @property
    def parties(self) -> Sequence[BaseParty[Any]]:
        """Everybody who is honest, in the order of their start."""

    def client(self, name: str) -> Any:
        """Return the client of that name."""


class PartiesSimulation(Simulation):
    """Such a run; a subclass makes cast and trouble, and says in `phases` who leaves when."""

    knobs: Any
    cast: Any
    trouble: Trouble

    # --- for subclasses ---------------------------------------------------------------------------
    def settle_s(self) -> float:
        """Return the time in which everything must settle once faults are healed (I10)."""
        raise NotImplementedError

    def not_settled(self) -> list[str]:
        """Say in what the processes do not agree about who is there."""
        raise NotImplementedError

    def left_after_calls(self) -> list[str]:
        """Say what anybody still holds when nothing is asked any more."""
        raise NotImplementedError

    def left_after_drain(self, party: Any) -> Iterable[str]:
        """Say in what a party that has drained differs from one that never did anything."""
        raise NotImplementedError

    def probes(self, client: str) -> int:
        """Return how many calls a client makes once all is well, so that all ways are tried."""
        raise NotImplementedError

    def probe(self, client: str, number: int) -> CallPlan:
        """Make a call that must be answered within `PROBE_S` once all is well."""
        raise NotImplementedError

    def may_be_lost(self, _plan: CallPlan, _outcome: object) -> bool:
        """Whether a probe may end like that all the same."""
        return False

    # --- the beginning ----------------------------------------------------------------------------
    def begin(self) -> None:
        """Let everybody start, and put the calls and the faults into the queue."""
        self.plan_all(self.cast.parties, self.cast, self.trouble)

    def heal(self) -> None:
        """End all faults."""
        self.trouble.end()

    # --- what must come about (I10) ---------------------------------------------------------------
    def settle(self) -> bool:
        """Everything pending comes to its end, and everybody is connected."""
        limit_s = self.settle_s()
        self.world.run(self.world.now + self.knobs.network.spike_s)  # what is late has come by then
        self.wait(lambda: not self.unsettled(), limit_s)
        problems = self.unsettled()
        for problem in problems:
            self.history.violate("I10", f"{limit_s:.1f} s after all faults have healed, {problem}")
        return not problems

    def unsettled(self) -> list[str]:
        """Say what is still to come about."""
        problems = [f"{call} has not ended" for call in self.history.open.values()]
        return problems or self.not_settled() or self.left_after_calls()

    def ask(self) -> bool:
        """Who asks now gets replies, whichever way the request goes."""
        self.remark("every client calls")
        probes = [plan for client in self.knobs.clients for plan in self._plan_probes(client.name)]
        self.wait(lambda: self.have_ended(probes), PROBE_S * (len(probes) + 1))
        for plan in probes:
            outcome = self.outcome_of(plan)
            if not isinstance(outcome, Reply) and not self.may_be_lost(plan, outcome):
                text = f"{plan.client} calls and gets {outcome!r}"
                self.history.violate("I10", f"with all faults healed, {text}")
        return not self.history.open

    def _plan_probes(self, client: str) -> Iterator[CallPlan]:
        """Make calls one after the other."""
        user, before = self.cast.client(client).user, None
        for _ in range(self.probes(client)):
            plan = self.probe(client, next(self.numbers))._replace(follows=before)
            self.plan_call(plan, user)
            yield plan
            before = plan.number

    # --- what must not be left (I9) ---------------------------------------------------------------
    def left_in_the_end(self, limit_s: float) -> list[str]:
        """Say what stays: what was sent again may have met its reply, and runs once more."""
        self.wait(lambda: not self.left_after_calls(), limit_s)
        return self.left_after_calls()

    def wait_until_alone(self, parties: Sequence[BaseParty[Any]]) -> None:
        """Wait until nobody is connected to them any more."""
        self.wait(lambda: not any(party.streams for party in parties), LEAVE_S)

    def send_home(self, who: str, parties: Sequence[BaseParty[Any]], left: list[str]) -> bool:
        """Let some of them leave; nothing may be `left`, nor be there afterwards."""
        self.remark(f"the {who} leave")
        for party in parties:
            party.retired = True
            party.drain()
        if not self.wait(lambda: not any(party.alive for party in parties), LEAVE_S):
            left.append(f"one of the {who} does not end when it is told to")
        left += [what for party in parties for what in self.left_after_drain(party)]
        for what in left:
            self.history.violate("I9", what)
        return not left


# --- how long things take -------------------------------------------------------------------------
def reconnect_s(network: Shape) -> float:
    """Return the time in which a dead connection is found out and replaced."""
    return network.keepalive_s + network.retransmit_s + 2 * network.connect_timeout_s + 12


def handler_s_max(service_s: float, behaviours: Sequence[Behaviour]) -> float:
    """Return how long a handler takes at most: for five partial replies, three times the knob's
    each, or until it hangs no more."""
    return max(15 * service_s, HANG_S if Behaviour.HANG in behaviours else 0.0)
