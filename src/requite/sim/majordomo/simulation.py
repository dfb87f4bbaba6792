"""A run of the Majordomo broker: its phases, faults and checkers."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from random import Random
from typing import Any, ClassVar, Final

from requite.request import Reply
from requite.sim.kernel.checkers.leftovers import sizes
from requite.sim.kernel.fault_injection import FaultInjector
from requite.sim.kernel.history import Checker
from requite.sim.kernel.knobs import Behaviour
from requite.sim.kernel.plan import Plan
from requite.sim.kernel.result import Options
from requite.sim.kernel.simulation import Luck, Phase, Simulation
from requite.sim.kernel.transcript import Describe
from requite.sim.kernel.workload import NOBODY, CallPlan, draw_calls
from requite.sim.majordomo.cast import MajordomoCast
from requite.sim.majordomo.checkers import CHECKERS
from requite.sim.majordomo.checkers.tables import (
    left_after_all,
    left_after_calls,
    left_after_clients,
    left_after_drain,
    not_settled,
)
from requite.sim.majordomo.clients import ClientProcess
from requite.sim.majordomo.knobs import ClientSpec, Knobs
from requite.sim.majordomo.roles import BROKER, MajordomoParts, Stage
from requite.sim.majordomo.words import describe
from requite.transport.address import Address, TcpAddress

_PROBE_S: Final = 15.0
_LEAVE_S: Final = 10.0
# The broker's own services; 8/MMI.
_MANAGEMENT: Final = ("mmi.service", "mmi.list", "mmi.stats", "mmi.workers", "mmi.nothing")


class MajordomoSimulation(Simulation):
    """A run with one broker, clients and workers."""

    knobs_type: ClassVar[type] = Knobs
    checkers: tuple[type[Checker], ...] = CHECKERS
    describe: Describe = staticmethod(describe)

    def __init__(self, plan: Plan, options: Options) -> None:
        super().__init__(plan, options, self.checkers, self.describe)
        self.knobs: Knobs = plan.knobs
        self.cast = self.make_cast(Stage.of(self, MajordomoParts, places=self.places()))
        self.injector = FaultInjector(self.cast)

    def make_cast(self, stage: Stage) -> MajordomoCast:
        """Create all processes."""
        return MajordomoCast(stage)

    @staticmethod
    def draw_calls(knobs: Any, luck: Luck) -> Iterable[CallPlan]:
        """Draw the calls of the first phase, and the service of each."""
        rng = luck("services")
        for plan in draw_calls(knobs, luck("calls"), _may_be_endless):
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
        """Return the time in seconds in which everything must settle once faults have ended."""
        return settle_s(self.knobs)

    def unsettled(self) -> list[str]:
        """Return what has not settled yet."""
        pending = [f"{call} has not ended" for call in self.history.open.values()]
        return pending or not_settled(self.cast) or [*left_after_calls(self.cast)]

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
        self.wait(lambda: self.have_ended(probes), _PROBE_S + 1)
        for plan in probes:
            outcome = self.outcome_of(plan)
            if not isinstance(outcome, Reply) or len(outcome.frames) != 2:
                text = f"{plan.client} calls {plan.service} and gets {outcome!r}"
                self.history.violate("I10", f"after all faults have ended, {text}")

    def services_of(self, client: ClientProcess) -> Sequence[str]:
        """Return the services that answer a client."""
        return self.knobs.services

    def _plan_probe(self, client: str, service: str) -> CallPlan:
        number = next(self.numbers)
        return CallPlan(
            number=number,
            at_s=self.world.now,
            client=client,
            service=service,
            behaviour=Behaviour.ECHO,
            service_s=0.001,
            parts=0,
            payload=b"probe %d" % number,
            timeout_s=_PROBE_S,
            idempotent=True,
            wants_partials=False,
            cancel_after_s=None,
        )

    def _drain_clients(self) -> bool:
        """Check I9: once calls and clients have ended, no state of them is left."""
        cast = self.cast
        left = [*left_after_calls(cast)]
        self.remark("the clients leave")
        for client in cast.clients:
            client.retired = True
            client.drain()
        gone = self.wait(lambda: not any(client.alive for client in cast.clients), _LEAVE_S)
        self.wait(lambda: not [*left_after_clients(cast.broker)], _LEAVE_S)
        left += left_after_clients(cast.broker)
        left += [what for client in cast.clients for what in left_after_drain(client)]
        for what in left:
            self.history.violate("I9", what)
        return gone and not left

    def _drain_workers(self) -> bool:
        """Check I9: without peers the broker equals a new one, and it exits after a drain."""
        broker = self.cast.broker
        self.remark("the workers leave")
        for worker in self.cast.workers:
            worker.retired = True
            worker.drain()
        gone = self.wait(lambda: not any(w.alive for w in self.cast.workers), _LEAVE_S)
        fresh = sizes(self.options.parts_of(MajordomoParts).broker(self.knobs.broker_policy))
        limit_s = self.knobs.service_ttl_s * 2 + _LEAVE_S
        self.wait(lambda: not [*left_after_all(broker, fresh)], limit_s)
        for what in left_after_all(broker, fresh):
            self.history.violate("I9", f"after all peers have left, {what}")
        for what in [what for worker in self.cast.workers for what in left_after_drain(worker)]:
            self.history.violate("I9", what)
        broker.retired = True
        broker.drain()
        if not self.wait(lambda: not broker.alive, _LEAVE_S) or not gone:
            self.history.violate("I9", "a worker or the broker does not exit after a drain")
        return gone


def _draw_service(knobs: Knobs, rng: Random) -> str:
    lot = rng.random()
    if lot < knobs.nobody_p:
        return NOBODY
    return rng.choice(_MANAGEMENT if lot < knobs.nobody_p + knobs.manage_p else knobs.services)


def _may_be_endless(client: ClientSpec, behaviour: Behaviour, _idempotent: bool) -> bool:
    """Whether a call may have no deadline: only MDP 0.3 reports every failure."""
    return client.version == "0.3" and behaviour is not Behaviour.HANG


def settle_s(knobs: Knobs) -> float:
    """Return the time in seconds in which everything must settle once faults have ended (I10).

    It is the sum of what may happen in sequence: a dead connection is detected and replaced, silent
    peers are given up, deadlines pass, and calls without a deadline are retried and worked off.
    """
    network = knobs.network
    connection_s = network.keepalive_s + network.retransmit_s + 2 * network.connect_timeout_s + 12
    presence_s = 2 * knobs.presence_s
    deadlines_s = 1.5 * knobs.timeout_s + knobs.interval_s
    tries = max(client.tries for client in knobs.clients)
    retries_s = tries * (knobs.service_grace_s + 2.0)
    lease_s = max(worker.lease_s for worker in knobs.workers)
    work_s = knobs.calls * (0.1 + knobs.endless_p * (3 * knobs.service_s + 2 * lease_s))
    return connection_s + presence_s + deadlines_s + retries_s + work_s
