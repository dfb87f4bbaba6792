"""A run of a pair: faults, then none; then each guarantee is tested once more."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Final, NamedTuple

from requite.protocols.binarystar.table import PairRole, State
from requite.sim.kernel import virtual
from requite.sim.kernel.cast import Cast
from requite.sim.kernel.fault_injection import FaultAction, FaultInjector, choose, upon
from requite.sim.kernel.faults import FaultKind
from requite.sim.kernel.plan import Plan
from requite.sim.kernel.process import Process
from requite.sim.kernel.result import Options
from requite.sim.kernel.simulation import Luck, Phase, Simulation
from requite.sim.pair.clients import PairClient
from requite.sim.pair.intruder import PairIntruder
from requite.sim.pair.knobs import PairKnobs
from requite.sim.pair.ledger import Ledger
from requite.sim.pair.server import PairParts, PairServer, PairStage
from requite.sim.pair.words import describe

_INTRUDERS: Final = 2
_START_WITHIN_S: Final = 0.1
_POLL: Final = 0.1  # the interval of requests while a fail-over is awaited, in heartbeats
_LINKS_MAX: Final = 4  # two to the other server, two from before its restart
_LEAVE_S: Final = 10.0


class PairCast(Cast):
    """The two servers."""

    def __init__(self, stage: PairStage) -> None:
        self.servers = [PairServer(role, stage) for role in PairRole]
        intruders = [PairIntruder(f"intruder-{i + 1}", stage) for i in range(_INTRUDERS)]
        ways = [("primary", "backup")]
        super().__init__(stage, {"server": self.servers}, intruders, ways=ways)


class PairFaults(FaultInjector):
    """Inject faults into a pair; operators request a switch."""

    _cast: PairCast

    def actions(self) -> Mapping[str, FaultAction]:
        """Return the faults of the servers, and the request of a switch."""
        switch: FaultAction = upon(self._cast.servers, lambda server, _fault: server.switch())
        return {**super().actions(), FaultKind.SWITCH: switch}


class PairCall(NamedTuple):
    """A call that the client with the index `asker` makes at `at_s`."""

    number: int
    at_s: float
    asker: int


class PairSimulation(Simulation):
    """A run with two servers and their clients."""

    knobs_type = PairKnobs
    call_type = PairCall

    def __init__(self, plan: Plan, options: Options) -> None:
        super().__init__(plan, options, (), describe)
        self.knobs: PairKnobs = plan.knobs
        knobs = self.knobs
        self.ledger = Ledger(self.history, knobs)
        stage = PairStage.of(self, PairParts, changed=self.ledger.changed)
        self.cast = PairCast(stage)
        self.injector = PairFaults(self.cast)
        self.ledger.servers = servers = self.cast.servers
        self.clients = [
            PairClient(
                f"client-{i + 1}",
                stage,
                self.ledger,
                servers[i % 2 :][:1] if knobs.islands else servers,
            )
            for i in range(knobs.askers)
        ]

    # --- the run ----------------------------------------------------------------------------------
    def run(self) -> None:
        """Run all phases with virtual clock and seeded randomness."""
        with virtual.quiet(), virtual.world(self.world):
            super().run()
            for server in self.cast.servers:
                server.discard()

    @staticmethod
    def draw_calls(knobs: PairKnobs, luck: Luck) -> Iterable[PairCall]:
        """See `Simulation.draw_calls`."""
        rng = luck("workload")
        for _ in PairRole:  # when each server starts: see `begin`
            rng.random()
        for number in range(1, knobs.calls + 1):
            at_s = rng.random() * knobs.faulty_s
            yield PairCall(number, at_s, rng.choice(range(knobs.askers)))

    def begin(self) -> None:
        """Schedule the starts of the servers, and the planned calls."""
        world, rng = self.world, self.world.rng("workload")
        for server in self.cast.servers:
            world.at(rng.random() * _START_WITHIN_S, server.start)
        for call in self.planned.calls:
            world.at(call.at_s, self.clients[call.asker].ask, call.number)

    def heal(self) -> None:
        """End all faults; every client reaches both servers."""
        self.injector.end()
        for client in self.clients:
            client.reach = [*self.cast.servers]

    def process_failed(self, process: Process, trace: str) -> None:
        """Report a process that ended with an exception (I13)."""
        self.history.violate("I13", f"{process.name}: {trace}")
        super().process_failed(process, trace)

    def phases(self) -> Iterable[Phase]:
        """Return the phases after the faults."""
        return (
            self._settle,
            self._switch,
            self._fail_over,
            self._do_not_fail_back,
            self._freeze_shortly,
            self._freeze,
            self._hand_over,
            self._drain_both,
        )

    # --- liveness (I10) ---------------------------------------------------------------------------
    def _settle(self) -> bool:
        """Wait until all calls are answered and one server serves."""
        network = self.knobs.network
        connection_s = network.keepalive_s + network.retransmit_s + 2 * network.connect_timeout_s
        limit_s = 2 * connection_s + 10 * self.knobs.heartbeat_s + self.knobs.patience_s + 5
        self._ask()
        self.world.run(self.world.now + self._reconnect_s())
        return self._must(lambda: not self._unsettled(), limit_s, self._unsettled)

    def _unsettled(self) -> str:
        states = sorted(server.half.state for server in self.cast.servers if server.alive)
        if self.ledger.open:
            return f"{self.ledger.open[0]} is not answered"
        if states != [State.ACTIVE, State.PASSIVE]:
            return f"the two are {[state.name for state in states]}"
        if any(server.half.view(server.clock()).peer_is_silent for server in self.cast.servers):
            return "a server has not heard the other"
        links = [server.half.snapshot().links for server in self.cast.servers]
        return "" if max(links) <= _LINKS_MAX else f"there are {links} connections"

    def _switch(self) -> bool:
        """Switch by an operator's request to either server."""
        self.remark("an operator switches")
        _, passive = self._pair()
        chosen = choose(self.cast.servers, self.world.rng("operator").random())
        chosen.switch()
        done = self._must(lambda: passive.serves, self.knobs.slack_s, lambda: "no switch")
        return done and self._settle()

    def _fail_over(self) -> bool:
        """Crash the active server; the other takes over two heartbeats after its last message."""
        active, passive = self._pair()
        active.retired = True  # prevents an early restart
        if self.seed % 2:
            active.lose_power()
        else:
            active.crash()
        limit_s = self.knobs.failover_s + 2 * _POLL * self.knobs.heartbeat_s + self.knobs.slack_s
        done = self._must(lambda: self._served_by(passive), limit_s, lambda: "no fail-over")
        active.retired = False
        active.start()
        return done

    def _do_not_fail_back(self) -> bool:
        """Restart the crashed server; it becomes and stays passive."""
        before = next(server for server in self.cast.servers if server.serves)
        self.world.run(self.world.now + 5 * self.knobs.heartbeat_s + self._reconnect_s())
        if not before.serves:
            self.history.violate("I10", f"{before.name} no longer serves")
        return self._settle()

    def _freeze_shortly(self) -> bool:
        """Freeze the active server while no client asks; it resumes in the same epoch."""
        active, _ = self._pair()
        epoch = active.half.epoch
        self._stand_still(active, 5 * self.knobs.heartbeat_s)
        limit_s = self.knobs.heartbeat_s + self._reconnect_s() + self.knobs.slack_s
        return self._must(
            lambda: active.serves and active.half.epoch == epoch,
            limit_s,
            lambda: "it does not resume",
        )

    def _freeze(self) -> bool:
        """Freeze the active server until it is replaced; it answers no client when it resumes."""
        active, passive = self._pair()
        active.freeze()
        limit_s = self.knobs.failover_s + 2 * _POLL * self.knobs.heartbeat_s + self.knobs.slack_s
        done = self._must(lambda: self._served_by(passive), limit_s, lambda: "no fail-over")
        active.thaw()
        if active.serves:
            self.history.violate("I12", f"{active.name} serves when it resumes")
        return done and self._settle()

    def _hand_over(self) -> bool:
        """Drain the active server; the other takes over first, without a vote."""
        active, passive = self._pair()
        active.retired = True
        active.drain()
        limit_s = self.knobs.failover_s + _LEAVE_S
        done = self._must(lambda: not active.alive, limit_s, lambda: "it does not exit")
        if not passive.serves:
            self.history.violate(
                "I10", f"{active.name} has exited, but {passive.name} does not serve"
            )
        return done

    def _drain_both(self) -> bool:
        for server in self.cast.servers:
            server.retired = True
            server.drain()
        left = [server.half.snapshot().links for server in self.cast.servers]
        if not self.wait(lambda: not any(s.alive for s in self.cast.servers), _LEAVE_S):
            self.history.violate("I9", f"one of the two does not exit; connections: {left}")
        for server in (each for each in self.cast.servers if each.has_exited):
            for what in server.loop.left():
                self.history.violate("I9", f"{server.name} has exited, and leaves {what}")
        return True

    # --- helpers ----------------------------------------------------------------------------------
    def _pair(self) -> tuple[PairServer, PairServer]:
        """Return the active server and the other one."""
        one, two = self.cast.servers
        return (one, two) if one.serves else (two, one)

    def _ask(self) -> None:
        self.clients[0].ask(next(self.numbers))

    def _served_by(self, server: PairServer) -> bool:
        """Send a client's request; return whether the server serves. Time stops as soon as it does,
        before the other server can hear of it."""
        if server.alive and not server.frozen:
            server.turn(server.vote)
        flush_s = self.knobs.pace.flush_late_s
        self.world.run(self.world.now + flush_s, unless=lambda: server.serves)
        return server.serves

    def _stand_still(self, server: PairServer, seconds: float) -> None:
        server.freeze()
        self.world.run(self.world.now + seconds)
        server.thaw()

    def _reconnect_s(self) -> float:
        """Return the time in seconds in which two servers reconnect after one was frozen: dead
        connections are detected and redialled with pauses of 2 s."""
        return 2 * self.knobs.failover_s + 2 * self.knobs.network.connect_timeout_s + 5

    def _must(self, holds: Callable[[], bool], limit_s: float, why: Callable[[], str]) -> bool:
        """Run until a condition holds; report a violation after `limit_s`."""
        step_s = _POLL * self.knobs.heartbeat_s
        until = self.world.now + limit_s
        while not holds():
            if self.world.now >= until:
                self.history.violate("I10", f"after {limit_s:.2f} s: {why()}")
                return False
            self.world.run(min(until, self.world.now + step_s))
        return True

    # --- the result -------------------------------------------------------------------------------
    def tally(self) -> tuple[int, dict[str, int]]:
        """Return the number of requests, and how often they had each outcome."""
        return len(self.ledger.requests), self.ledger.outcomes

    def lines(self) -> Iterable[str]:
        """Return the lines of the digest."""
        return [f" {self.ledger.lines}"]
