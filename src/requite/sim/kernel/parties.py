"""The phases of runs whose processes are all parties (`requite.sim.kernel.party`).

First there are calls and faults. After the faults, everything must settle, every probe call must
get a reply, and all parties drain, one kind after the other, without leaving any state.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any, ClassVar, Final

from requite.request import Reply
from requite.sim.kernel.cast import Cast
from requite.sim.kernel.checkers import leftovers
from requite.sim.kernel.fault_injection import FaultInjector
from requite.sim.kernel.handlers import HANG_S
from requite.sim.kernel.history import Checker
from requite.sim.kernel.knobs import Behaviour
from requite.sim.kernel.medium import Shape
from requite.sim.kernel.party import Party
from requite.sim.kernel.plan import Plan
from requite.sim.kernel.result import Options
from requite.sim.kernel.simulation import Luck, Phase, Simulation
from requite.sim.kernel.transcript import show_body
from requite.sim.kernel.workload import CallPlan, draw_calls, plain_call

PROBE_S: Final = 15.0
LEAVE_S: Final = 10.0


class PartiesSimulation(Simulation):
    """A run of parties.

    Subclasses declare, besides `knobs_type`: `checkers`; `idle`, the counts of a snapshot that must
    be 0 without calls, and `connections`, those that add up to the connections, by kind of party;
    `constant`, the paths of tables that never change, and of caches with a limit; `drains`, the
    roles in the order in which they drain.
    """

    checkers: ClassVar[tuple[type[Checker], ...]]
    idle: ClassVar[Mapping[str, Sequence[str]]] = {}
    connections: ClassVar[Mapping[str, Sequence[str]]] = {}
    constant: ClassVar[frozenset[str]] = frozenset()
    drains: ClassVar[Sequence[str]] = ()
    knobs: Any
    cast: Any

    def __init__(self, plan: Plan, options: Options) -> None:
        self.knobs = plan.knobs
        super().__init__(plan, options, self.checkers, self.describe, self.show)
        self.cast = self.make_cast()
        self.injector = FaultInjector(self.cast)

    # --- for subclasses ---------------------------------------------------------------------------
    def make_cast(self) -> Cast:
        """Create all processes."""
        raise NotImplementedError

    def describe(self, sender: str, message: Sequence[bytes]) -> str:
        """Describe a message in words."""
        raise NotImplementedError

    def show(self, frames: Sequence[bytes]) -> str:
        """Show the frames of a reply."""
        return show_body(frames)

    @staticmethod
    def may_be_endless(client: Any, behaviour: Behaviour, idempotent: bool) -> bool:
        """Whether a call may have no deadline."""
        return False

    def expected(self, party: Any) -> Counter[Any] | None:
        """Return the connections that a party must have once faults have ended, by place and name
        of the peer; None if that depends on its calls."""
        return None

    def disagreements(self) -> Iterable[str]:
        """Return where the processes disagree about live peers, besides their connections."""
        return ()

    def probes(self, client: str) -> int:
        """Return how many probe calls a client makes, so that all paths are used."""
        raise NotImplementedError

    def probe(self, client: str, number: int) -> CallPlan:
        """Return a call that must be answered within `PROBE_S` once faults have ended."""
        return plain_call(client, number, PROBE_S)

    def may_be_lost(self, _plan: CallPlan, _outcome: object) -> bool:
        """Whether a probe may end with this outcome without a violation."""
        return False

    # --- the beginning ----------------------------------------------------------------------------
    @classmethod
    def draw_calls(cls, knobs: Any, luck: Luck) -> Iterable[CallPlan]:
        """See `Simulation.draw_calls`."""
        return draw_calls(knobs, luck("calls"), cls.may_be_endless)

    def phases(self) -> Iterable[Phase]:
        """Settle, probe every path, then drain role after role."""
        return (self.settle, self.ask, *(partial(self._drain, role) for role in self.drains))

    def begin(self) -> None:
        """Schedule the starts of all parties, and the planned calls."""
        self.plan_all(self.cast.honest, self.cast)

    # --- liveness (I10) ---------------------------------------------------------------------------
    def unsettled(self) -> list[str]:
        """Return what has not settled yet."""
        problems = [f"{call} has not ended" for call in self.history.open.values()]
        return problems or self.not_settled() or self.left_after_calls()

    def not_settled(self) -> list[str]:
        """Return parties that are not alive, or not connected as they should be."""
        parties = self.cast.honest
        dead = [f"{party.name} is not alive" for party in parties if not party.alive]
        unlike = [problem for party in parties if not dead for problem in self._unlike(party)]
        return dead or [*unlike, *self.disagreements()]

    def _unlike(self, party: Any) -> Iterator[str]:
        yield from leftovers.dead_ends(party)
        expected = self.expected(party)
        if expected is None:
            return
        hub = party.hub
        found = Counter((place, hub.names[peer]) for peer, place in hub.places.items())
        if found != expected:
            yield f"{party.name} has connections to {dict(found)}, not to {dict(expected)}"
        state = hub.snapshot()
        counts = {
            "connections": len(party.streams),
            "links": len(party.host.links),
        }
        if names := self.connections.get(party.kind):
            counts["the engine"] = sum(getattr(state, name) for name in names)
        if set(counts.values()) != {expected.total()}:
            yield f"the tables of {party.name} differ: {counts}"

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
    def left_after_calls(self) -> list[str]:
        """Return what any party still holds when no calls are left."""
        return [*leftovers.held(self.cast.honest, self.idle)]

    def left_after_drain(self, party: Any) -> Iterable[str]:
        """Return the tables in which a drained party differs from an unused one."""
        return leftovers.left_after_drain(party, party.hub.places, self._sizes)

    def _sizes(self, engine: object) -> dict[str, int]:
        found = leftovers.sizes(engine)
        return {path: size for path, size in found.items() if path not in self.constant}

    def _drain(self, role: str) -> bool:
        """Drain a role; the last of all roles then has no peers, and must equal new processes."""
        parties = self.cast.roles[role]
        if role != self.drains[-1] or len(self.drains) < len(self.cast.roles):
            return self.drain_all(f"{role}s", parties, self.left_in_the_end(self.settle_s()))
        self.wait_until_alone(parties)
        left = [what for party in parties for what in leftovers.left_after_all(party)]
        return self.drain_all(f"{role}s", parties, left)

    def left_in_the_end(self, limit_s: float) -> list[str]:
        """Return what is left after `limit_s`; until then a resent request may still run."""
        self.wait(lambda: not self.left_after_calls(), limit_s)
        return self.left_after_calls()

    def wait_until_alone(self, parties: Sequence[Party[Any]]) -> None:
        """Wait until the parties have no connections."""
        self.wait(lambda: not any(party.streams for party in parties), LEAVE_S)

    def drain_all(self, who: str, parties: Sequence[Party[Any]], left: list[str]) -> bool:
        """Drain some parties; report what was `left` before, and what is left afterwards."""
        self.leave(who, parties, left)
        return self.report(left)

    def leave(self, who: str, parties: Sequence[Party[Any]], left: list[str]) -> None:
        """Drain some parties, and add what is `left`."""
        self.remark(f"the {who} leave")
        for party in parties:
            party.retired = True
            party.drain()
        if not self.wait(lambda: not any(party.alive for party in parties), LEAVE_S):
            left.append(f"one of the {who} does not exit after a drain")
        left += [what for party in parties for what in self.left_after_drain(party)]

    def report(self, left: Iterable[str]) -> bool:
        """Report what is left (I9); return whether nothing is."""
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
