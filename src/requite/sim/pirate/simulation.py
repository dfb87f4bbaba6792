"""A run of the Pirates: its phases, and what its checkers are told."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from enum import StrEnum
from typing import Any, Final

from requite.engine import Drain, PeerLost
from requite.request import Reply
from requite.sim.checkers.calls import EndsOnce
from requite.sim.checkers.tables import difference, sizes
from requite.sim.faults import Fault, plan_faults
from requite.sim.history import History
from requite.sim.knobs import Behaviour
from requite.sim.network import Network
from requite.sim.pirate.checkers import PIRATE_CHECKERS, LosesNothing
from requite.sim.pirate.intruder import PirateIntruder
from requite.sim.pirate.knobs import Crew, PirateFault, PirateKnobs
from requite.sim.pirate.parties import Client, Party, PirateStage, Queue, Server, Worker
from requite.sim.pirate.presence import HeardInTime
from requite.sim.pirate.queueing import TheQueue
from requite.sim.pirate.words import describe
from requite.sim.pirate.workload import plan_call, plan_calls
from requite.sim.process import Process
from requite.sim.result import Options
from requite.sim.simulation import Phase, Simulation
from requite.sim.stream import SimStream
from requite.sim.trouble import Deed, Trouble, Way, choose
from requite.sim.workload import CallPlan

_PROBE_S: Final = 15.0
_LEAVE_S: Final = 10.0
_INTRUDERS: Final = 3
_HANG_S: Final = 2.0
_SLACK_S: Final = 0.01


class Cast:
    """All processes of a run; none is started yet."""

    def __init__(self, stage: PirateStage) -> None:
        knobs = stage.knobs
        self.world = stage.world
        self.network = stage.network
        self.clients = [Client(spec, stage) for spec in knobs.clients]
        self.workers = [Worker(spec.name, stage) for spec in knobs.workers]
        has_queue = knobs.crew is not Crew.LAZY
        kind = Queue if has_queue else Server
        self.middle: list[Party] = [kind(name, stage) for name in knobs.middle]
        self.intruders = [PirateIntruder(f"intruder-{i + 1}", stage) for i in range(_INTRUDERS)]
        self.parties: list[Party] = [*self.middle, *self.workers, *self.clients]
        self.honest: list[Process] = [*self.parties]

    def client(self, name: str) -> Client:
        """Return the client of that name."""
        return next(client for client in self.clients if client.name == name)


class PirateSimulation(Simulation):
    """Clients, and those whom they ask."""

    def __init__(self, seed: int, knobs: PirateKnobs, options: Options) -> None:
        super().__init__(seed, knobs, options, PIRATE_CHECKERS, describe)
        self.knobs = knobs
        stage = PirateStage(
            self.world,
            Network(self.world, knobs.network),
            self.history,
            self,
            knobs,
            options.pirate_parts,
            self.transcript,
        )
        self.cast = Cast(stage)
        self.trouble = PirateTrouble(self.cast)
        instruct(self.history, knobs)

    def plan(self) -> None:
        """Plan the start, the calls and the faults."""
        rng = self.world.rng("start")
        for party in self.cast.parties:
            self.world.at(rng.random() * 0.1, party.start)
        for plan in plan_calls(self.knobs, self.world.rng("calls")):
            self.plan_call(plan, self.cast.client(plan.client).user)
        for fault in plan_faults(self.knobs, self.world.rng("faults")):
            self.world.at(fault.at_s, self.trouble.strike, fault)

    def heal(self) -> None:
        """End all faults."""
        self.trouble.end()

    def phases(self) -> Iterable[Phase]:
        """Settle, ask everybody, and go."""
        return (self._settle, self._probe, self._clients_home, self._workers_home, self._last_home)

    # --- what must come about (I10) ---------------------------------------------------------------
    def _settle(self) -> bool:
        """Everything pending settles, and every worker is ready."""
        limit_s = settle_s(self.knobs)
        self.world.run(self.world.now + self.knobs.network.spike_s)  # what is late has come by then
        self.wait(lambda: not self._unsettled(), limit_s)
        problems = self._unsettled()
        for problem in problems:
            self.history.violate("I10", f"{limit_s:.1f} s after all faults have healed, {problem}")
        return not problems

    def _unsettled(self) -> list[str]:
        problems = [f"{call} has not ended" for call in self.history.open.values()]
        problems += [f"{p.name} is not alive" for p in self.cast.parties if not p.alive]
        return problems or [*_unlike_peers(self.cast)] or [*_left_after_calls(self.cast.parties)]

    def _probe(self) -> bool:
        """Who asks now gets replies, from every worker."""
        self.remark("every client calls, once for each worker and once more")
        probes = [plan for client in self.knobs.clients for plan in self._plan_probes(client.name)]
        self.wait(lambda: self.have_ended(probes), _PROBE_S * (len(probes) + 1))
        for plan in probes:
            outcome = self.outcome_of(plan)
            if not isinstance(outcome, Reply):
                text = f"{plan.client} calls and gets {outcome!r}"
                self.history.violate("I10", f"with all faults healed, {text}")
        return not self.history.open

    def _plan_probes(self, client: str) -> Iterator[CallPlan]:
        before = None
        for _ in range(len(self.knobs.workers) + 1):
            number = next(self.numbers)
            plan = plan_call(self.knobs, client, number, _PROBE_S, self.world.now)
            plan = plan._replace(follows=before)
            self.plan_call(plan, self.cast.client(client).user)
            yield plan
            before = number

    # --- what must not be left (I9) ---------------------------------------------------------------
    def _clients_home(self) -> bool:
        return self._send_home("clients", self.cast.clients, self._left_in_the_end())

    def _workers_home(self) -> bool:
        return self._send_home("workers", self.cast.workers, self._left_in_the_end())

    def _left_in_the_end(self) -> list[str]:
        """Say what stays: what was sent again may have met its reply, and runs once more."""
        self.wait(lambda: not [*_left_after_calls(self.cast.parties)], settle_s(self.knobs))
        return [*_left_after_calls(self.cast.parties)]

    def _last_home(self) -> bool:
        """With everybody gone, a queue or a server is as good as new."""
        middle = self.cast.middle
        self.wait(lambda: not any(party.streams for party in middle), _LEAVE_S)
        left = [
            f"everybody has left {party.name}, but {what}"
            for party in middle
            for what in difference(sizes(party.hub.engine), sizes(party.make_engine()))
        ]
        return self._send_home("last", middle, left)

    def _send_home(self, who: str, parties: Sequence[Party], left: list[str]) -> bool:
        self.remark(f"the {who} leave")
        for party in parties:
            party.retired = True
            party.drain()
        if not self.wait(lambda: not any(party.alive for party in parties), _LEAVE_S):
            left.append(f"one of the {who} does not end when it is told to")
        left += [what for party in parties for what in _left_after_drain(party)]
        for what in left:
            self.history.violate("I9", what)
        return not left


class PirateTrouble(Trouble):
    """What can go wrong between clients, servers, queue and workers."""

    _cast: Cast

    def deeds(self) -> Mapping[StrEnum, Deed]:
        """Return what each `PirateFault` does."""
        cast = self._cast
        workers = bool(cast.workers)
        return {
            PirateFault.CRASH_CLIENT: self.crash(cast.clients),
            PirateFault.CRASH_MIDDLE: self.crash(cast.middle),
            PirateFault.CRASH_WORKER: self.crash(cast.workers) if workers else _nothing,
            PirateFault.POWER_LOSS: self.lose_power,
            PirateFault.FREEZE_CLIENT: self.freeze(cast.clients),
            PirateFault.FREEZE_MIDDLE: self.freeze(cast.middle),
            PirateFault.FREEZE_WORKER: self.freeze(cast.workers) if workers else _nothing,
            PirateFault.PARTITION: self.partition,
            PirateFault.PARTITION_ONE_WAY: self.partition_one_way,
            PirateFault.CLOG: self.clog,
            PirateFault.RESET: self.reset,
            PirateFault.BLACK_HOLE: self.black_hole,
            PirateFault.DRAIN_CLIENT: self.drain(cast.clients),
            PirateFault.DRAIN_MIDDLE: self.drain(cast.middle),
            PirateFault.DRAIN_WORKER: self.drain(cast.workers) if workers else _nothing,
            PirateFault.INTRUDER: self.intrude,
        }

    def choose_way(self, lot: float) -> Way:
        """Everybody talks with those in the middle."""
        others = [*self._cast.clients, *self._cast.workers]
        ways = [(party.name, other.name) for party in self._cast.middle for other in others]
        return choose(ways, lot)

    def streams(self) -> Sequence[SimStream]:
        """Return the connections of those in the middle."""
        return [s for party in self._cast.middle for s in party.streams if s.is_open]


def _nothing(_fault: Fault) -> None:
    """Do nothing: there is nobody to whom it could happen."""


def instruct(history: History, knobs: PirateKnobs) -> None:
    """Tell the checkers what the knobs allow."""
    for checker in history.checkers:
        if isinstance(checker, EndsOnce):
            checker.grace_s = knobs.pace.timer_late_s
        elif isinstance(checker, LosesNothing):
            checker.is_on = knobs.lossless
        elif isinstance(checker, TheQueue):
            checker.is_simple = knobs.crew is Crew.SIMPLE
        elif isinstance(checker, HeardInTime):
            checker.is_on = knobs.crew is Crew.PARANOID
            checker.interval_s = knobs.interval_s
            checker.silence_s = knobs.silence_s
            checker.late_s = knobs.pace.timer_late_s + _SLACK_S


def settle_s(knobs: PirateKnobs) -> float:
    """Return the time in which everything must settle once faults are healed (I10).

    It is the sum of all that may have to happen one after the other: a dead connection is found
    out and replaced, silent peers are noticed, a pause before the next connection, deadlines pass,
    and handlers end.
    """
    network = knobs.network
    connection_s = network.keepalive_s + network.retransmit_s + 2 * network.connect_timeout_s + 12
    presence_s = 2 * knobs.silence_s + knobs.pause_max_s
    handler_s = 15 * knobs.service_s  # five partial replies, three times the knob's each
    if Behaviour.HANG in knobs.behaviours:
        handler_s = max(handler_s, _HANG_S)
    return connection_s + presence_s + 1.5 * knobs.timeout_s + 3 * handler_s


# --- tables ---------------------------------------------------------------------------------------
_IDLE: Final = {
    "client": ("held", "sent", "dialling"),
    "server": ("waiting", "running", "abandoned"),
    "queue": ("waiting", "busy"),
    "worker": ("waiting", "running", "abandoned", "dialling"),
}


def _left_after_calls(parties: Sequence[Party]) -> Iterator[str]:
    """Say what anybody still holds when nothing is asked any more."""
    for party in parties:
        state = party.hub.snapshot() if party.alive else None
        for name in _IDLE[party.kind] if state is not None else ():
            if getattr(state, name):
                what = f"{getattr(state, name)} {name}"
                yield f"nothing is asked any more, but {party.name} has {what}"


def _unlike_peers(cast: Cast) -> Iterator[str]:
    """Say which tables differ from who is there."""
    for party in cast.parties:
        for stream in party.streams:
            if not (stream.is_open and stream.other.is_open) or stream.pipe.broken:
                gone = stream.other.process.name
                yield f"{party.name} has a connection whose other end, at {gone}, is gone"
    askers = sum(client.hub.snapshot().connections for client in cast.clients)
    known = sum(_front_of(party) for party in cast.middle)
    if askers != known:
        yield f"clients have {askers} connections, and {known} are known at the other end"
    for party in cast.middle:
        if party.kind == "queue":
            state: Any = party.hub.snapshot()
            if (state.unready, state.idle) != (0, len(cast.workers)):
                yield f"{len(cast.workers)} workers are there, and {party.name} has {state}"


def _front_of(party: Party) -> int:
    count: int = party.hub.snapshot().clients
    return count


def _left_after_drain(party: Party) -> Iterator[str]:
    """Say in what a party that has drained differs from one that never did anything."""
    engine, now = party.hub.engine, party.clock()
    for peer in list(party.hub.places):  # its host has not told it of them any more
        engine.handle(PeerLost(peer), now)
    fresh = party.make_engine()
    fresh.handle(Drain(), now)
    for what in difference(sizes(engine), sizes(fresh)):
        yield f"{party.name} has drained, but {what}"
