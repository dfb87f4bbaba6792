"""A run of the Majordomo broker: its phases, faults and checkers."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from random import Random
from typing import Any, ClassVar, Final

from requite.request import Reply
from requite.sim.kernel.knobs import Behaviour
from requite.sim.kernel.parties import LEAVE_S, PROBE_S, PartiesSimulation, reconnect_s
from requite.sim.kernel.simulation import Luck, Phase
from requite.sim.kernel.workload import NOBODY, CallPlan, plain_call
from requite.sim.majordomo.cast import MajordomoCast
from requite.sim.majordomo.checkers import CHECKERS
from requite.sim.majordomo.checkers.tables import (
    disagreements,
    left_after_clients,
    left_at_broker,
)
from requite.sim.majordomo.knobs import ClientSpec, Knobs
from requite.sim.majordomo.parties import BROKER, ClientProcess, MajordomoParts, Stage
from requite.sim.majordomo.words import describe
from requite.transport.address import Address, TcpAddress

# The broker's own services; 8/MMI.
_MANAGEMENT: Final = ("mmi.service", "mmi.list", "mmi.stats", "mmi.workers", "mmi.nothing")


class MajordomoSimulation(PartiesSimulation):
    """A run with one broker, clients and workers."""

    knobs_type: ClassVar[type] = Knobs
    checkers = CHECKERS
    idle: ClassVar = {
        "broker": (),
        "client": ("held", "sent", "resting", "slots_taken"),
        "worker": ("running", "abandoned"),
    }
    knobs: Knobs
    cast: MajordomoCast

    def make_cast(self) -> MajordomoCast:
        """See `PartiesSimulation.make_cast`."""
        return MajordomoCast(self.make_stage())

    def make_stage(self) -> Stage:
        """Return the state that all processes share."""
        return Stage.of(self, MajordomoParts, places=self.places())

    def describe(self, sender: str, message: Sequence[bytes]) -> str:
        """See `words.describe`."""
        return describe(sender, message)

    @staticmethod
    def may_be_endless(client: ClientSpec, behaviour: Behaviour, _idempotent: bool) -> bool:
        """Whether a call may have no deadline: only MDP 0.3 reports every failure."""
        return client.version == "0.3" and behaviour is not Behaviour.HANG

    @classmethod
    def draw_calls(cls, knobs: Any, luck: Luck) -> Iterable[CallPlan]:
        """Draw the calls of the first phase, and the service of each."""
        rng = luck("services")
        for plan in super().draw_calls(knobs, luck):
            service = _draw_service(knobs, rng)
            yield plan._replace(service=service, wants_partials=rng.random() < knobs.partials_p)

    def places(self) -> tuple[Address, ...]:
        """Return the addresses of the brokers."""
        return (TcpAddress(BROKER, 5555),)

    def begin(self) -> None:
        """Schedule the starts of all processes, and the planned calls."""
        self.start_brokers()
        self.plan_all(self.cast.peers, self.cast)

    def start_brokers(self) -> None:
        """Start the broker."""
        self.world.at(0.0, self.cast.broker.start)

    def phases(self) -> Iterable[Phase]:
        """Settle, probe every service, then drain clients, workers and the broker."""
        return (self.settle, self._probe, self._drain_clients, self._drain_workers)

    def settle_s(self) -> float:
        """Return the time in seconds in which everything must settle once faults have ended (I10).

        It is the sum of what may happen in sequence: a dead connection is detected and replaced,
        silent peers are given up, deadlines pass, and calls without a deadline are retried and
        worked off.
        """
        knobs = self.knobs
        presence_s = 2 * knobs.presence_s
        deadlines_s = 1.5 * knobs.timeout_s + knobs.interval_s
        tries = max(client.tries for client in knobs.clients)
        retries_s = tries * (knobs.service_grace_s + 2.0)
        lease_s = max(worker.lease_s for worker in knobs.workers)
        work_s = knobs.calls * (0.1 + knobs.endless_p * (3 * knobs.service_s + 2 * lease_s))
        return reconnect_s(knobs.network) + presence_s + deadlines_s + retries_s + work_s

    def disagreements(self) -> list[str]:
        """See `tables.disagreements`."""
        return disagreements(self.cast)

    def _probe(self) -> bool:
        """Check I10: every client gets replies from every service."""
        self.remark("every client calls every service, one client after the other")
        for client in self.cast.clients:  # one at a time: attempts may be short
            self._probe_from(client)
        return not self.history.open

    def _probe_from(self, client: ClientProcess) -> None:
        probes = [self._plan_probe(client.name, each) for each in self.services_of(client)]
        for plan in probes:
            client.user.call(plan)
        self.wait(lambda: self.have_ended(probes), PROBE_S + 1)
        for plan in probes:
            outcome = self.outcome_of(plan)
            if not isinstance(outcome, Reply) or len(outcome.frames) != 2:
                text = f"{plan.client} calls {plan.service} and gets {outcome!r}"
                self.history.violate("I10", f"after all faults have ended, {text}")

    def services_of(self, client: ClientProcess) -> Sequence[str]:
        """Return the services that answer a client."""
        return self.knobs.services

    def _plan_probe(self, client: str, service: str) -> CallPlan:
        plan = plain_call(client, next(self.numbers), PROBE_S, service_s=0.001)
        return plan._replace(service=service)

    def _drain_clients(self) -> bool:
        """Check I9: once calls and clients have ended, no state of them is left."""
        broker, left = self.cast.broker, self.left_after_calls()
        self.leave("clients", self.cast.clients, left)
        self.wait(lambda: not [*left_after_clients(broker)], LEAVE_S)
        left += left_after_clients(broker)
        return self.report(left)

    def _drain_workers(self) -> bool:
        """Check I9: without peers the broker equals a new one, and it exits after a drain."""
        broker, left = self.cast.broker, list[str]()
        self.leave("workers", self.cast.workers, left)
        limit_s = self.knobs.service_ttl_s * 2 + LEAVE_S
        self.wait(lambda: not [*left_at_broker(broker)], limit_s)
        left += left_at_broker(broker)
        self.leave("brokers", [broker], left)
        return self.report(left)

    def left_after_drain(self, party: Any) -> Iterable[str]:
        """See `PartiesSimulation.left_after_drain`; a broker without peers has been checked."""
        return () if party is self.cast.broker else super().left_after_drain(party)


def _draw_service(knobs: Knobs, rng: Random) -> str:
    lot = rng.random()
    if lot < knobs.nobody_p:
        return NOBODY
    return rng.choice(_MANAGEMENT if lot < knobs.nobody_p + knobs.manage_p else knobs.services)
