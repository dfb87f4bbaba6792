"""A run of the Majordomo broker: its phases, faults and checkers."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from enum import StrEnum
from typing import Any, ClassVar, Final

from requite.request import Reply
from requite.sim.cast import Cast
from requite.sim.checkers import CHECKERS
from requite.sim.checkers.tables import (
    left_after_all,
    left_after_calls,
    left_after_clients,
    left_after_drain,
    not_settled,
    sizes,
)
from requite.sim.clients import ClientProcess
from requite.sim.fault_injection import FaultAction, FaultInjector, NodePair, choose
from requite.sim.history import Checker
from requite.sim.knobs import Behaviour, FaultKind, Knobs
from requite.sim.network import Network
from requite.sim.plan import Plan
from requite.sim.result import Options
from requite.sim.roles import BROKER, Stage
from requite.sim.simulation import Luck, Phase, Simulation
from requite.sim.stream import SimStream
from requite.sim.transcript import Describe
from requite.sim.words import describe
from requite.sim.workload import CallPlan, plan_calls
from requite.transport.address import TcpAddress

_PROBE_S: Final = 15.0
_LEAVE_S: Final = 10.0


class MajordomoSimulation(Simulation):
    """A run with one broker, clients and workers."""

    knobs_type: ClassVar[type] = Knobs
    checkers: tuple[type[Checker], ...] = CHECKERS
    describe: Describe = staticmethod(describe)

    def __init__(self, plan: Plan, options: Options) -> None:
        super().__init__(plan, options, self.checkers, self.describe)
        self.knobs: Knobs = plan.knobs
        self.cast = self.make_cast(self._stage())
        self.injector = self.make_injector()

    def make_cast(self, stage: Stage) -> Cast:
        """Create all processes."""
        return Cast(stage)

    def make_injector(self) -> MajordomoFaultInjector:
        """Return the faults of the run."""
        return MajordomoFaultInjector(self.cast)

    @staticmethod
    def draw_calls(knobs: Any, luck: Luck) -> Iterable[CallPlan]:
        """Draw the calls of the first phase."""
        return plan_calls(knobs, luck("calls"))

    def _stage(self) -> Stage:
        return Stage(
            self.world,
            Network(self.world, self.knobs.network),
            self.history,
            self,
            self.knobs,
            self.options.parts,
            self.transcript,
            self.places(),
        )

    def places(self) -> tuple[TcpAddress, ...]:
        """Return the addresses of the brokers."""
        return (TcpAddress(BROKER, 5555),)

    def begin(self) -> None:
        """Start all processes, and schedule the calls and the faults."""
        world, cast = self.world, self.cast
        rng = world.rng("start")
        self.start_brokers()
        for peer in cast.peers:
            world.at(rng.random() * 0.1, peer.start)
        for plan in self.planned.calls:
            self.plan_call(plan, cast.client(plan.client).user)
        for fault in self.planned.faults:
            world.at(fault.at_s, self.injector.inject, fault)

    def start_brokers(self) -> None:
        """Start the broker."""
        self.world.at(0.0, self.cast.broker.start)

    def heal(self) -> None:
        """End all faults."""
        self.injector.end()

    def phases(self) -> Iterable[Phase]:
        """Settle, probe every service, then drain clients, workers and the broker."""
        return (self._settle, self._probe, self._drain_clients, self._drain_workers)

    def _settle(self) -> bool:
        """Check I10: all pending calls end, and the tables match the live peers."""
        limit_s = self.settle_s()
        self.world.run(self.world.now + self.knobs.network.spike_s)  # late messages have arrived
        self.wait(lambda: not self.unsettled(), limit_s)
        problems = self.unsettled()
        for problem in problems:
            self.history.violate("I10", f"{limit_s:.1f} s after all faults ended, {problem}")
        return not problems

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
        probes = [self._plan_probe(client.name, service) for service in self.knobs.services]
        for plan in probes:
            client.user.call(plan)
        self.wait(lambda: self.have_ended(probes), _PROBE_S + 1)
        for plan in probes:
            outcome = self.outcome_of(plan)
            if not isinstance(outcome, Reply) or len(outcome.frames) != 2:
                text = f"{plan.client} calls {plan.service} and gets {outcome!r}"
                self.history.violate("I10", f"after all faults have ended, {text}")

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
        fresh = sizes(self.options.parts.broker(self.knobs.broker_policy))
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


class MajordomoFaultInjector(FaultInjector):
    """Injects faults into a run with a broker."""

    _cast: Cast

    def actions(self) -> Mapping[StrEnum, FaultAction]:
        """Return the action of each `FaultKind`."""
        cast = self._cast
        return {
            FaultKind.CRASH_BROKER: self.crash(cast.brokers),
            FaultKind.CRASH_WORKER: self.crash(cast.workers),
            FaultKind.CRASH_CLIENT: self.crash(cast.clients),
            FaultKind.POWER_LOSS: self.lose_power,
            FaultKind.FREEZE_BROKER: self.freeze(cast.brokers),
            FaultKind.FREEZE_WORKER: self.freeze(cast.workers),
            FaultKind.FREEZE_CLIENT: self.freeze(cast.clients),
            FaultKind.PARTITION: self.partition,
            FaultKind.PARTITION_ONE_WAY: self.partition_one_way,
            FaultKind.CLOG: self.clog,
            FaultKind.RESET: self.reset,
            FaultKind.BLACK_HOLE: self.black_hole,
            FaultKind.DRAIN_BROKER: self.drain(cast.brokers),
            FaultKind.DRAIN_WORKER: self.drain(cast.workers),
            FaultKind.DRAIN_CLIENT: self.drain(cast.clients),
            FaultKind.INTRUDER: self.intrude,
        }

    def choose_nodes(self, lot: float) -> NodePair:
        """Choose the broker and one of its peers."""
        return BROKER, choose(self._cast.peers, lot).name

    def streams(self) -> Sequence[SimStream]:
        """Return the broker's connections."""
        return [stream for stream in self._cast.broker.streams if stream.is_open]


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
