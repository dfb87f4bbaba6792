"""A run of Titanic: faults, then none; a last kill; close all requests; drain."""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from random import Random
from typing import Any, Final

from requite.sim.kernel import virtual
from requite.sim.kernel.fault_injection import FaultAction, Injector, choose
from requite.sim.kernel.faults import Fault, FaultKind
from requite.sim.kernel.plan import Plan
from requite.sim.kernel.process import Process
from requite.sim.kernel.result import Options
from requite.sim.kernel.simulation import Luck, Phase, Simulation
from requite.sim.titanic import users
from requite.sim.titanic.exchange import Exchange
from requite.sim.titanic.knobs import TitanicKnobs
from requite.sim.titanic.ledger import Ledger
from requite.sim.titanic.process import TitanicParts, TitanicProcess
from requite.sim.titanic.users import Network, TitanicCall, User, draw_call

_SETTLE_S: Final = 240.0
_LEAVE_S: Final = 30.0
_STRANGER: Final = b"a stranger"


class TitanicSimulation(Simulation):
    """A run with users, a Titanic process, and services behind a broker."""

    knobs_type = TitanicKnobs
    call_type = TitanicCall

    def __init__(self, plan: Plan, options: Options) -> None:
        super().__init__(plan, options, (), lambda _sender, _message: "")
        self.knobs: TitanicKnobs = plan.knobs
        knobs = self.knobs
        self.ledger = Ledger(self.history, knobs)
        parts = options.parts_of(TitanicParts)
        self.process = process = TitanicProcess(
            self.world, self, knobs, self.ledger, parts, self._process_says
        )
        self.exchange = process.exchange = Exchange(
            self.world, knobs, self.ledger, process.answered
        )
        self.network = Network(self.world, knobs, self.ledger, process)
        self.users: list[User] = []
        self.injector = TitanicFaults(self)

    # --- events -----------------------------------------------------------------------------------
    @staticmethod
    def draw_calls(knobs: TitanicKnobs, luck: Luck) -> Iterable[TitanicCall]:
        """See `Simulation.draw_calls`."""
        rng = luck("workload")
        return [draw_call(number, knobs, rng) for number in range(1, knobs.calls + 1)]

    def run(self) -> None:
        """Run all phases with virtual clock and seeded randomness."""
        with virtual.quiet(), virtual.world(self.world), _hearing(self.ledger):
            super().run()
            self.process.discard()

    def process_failed(self, process: Process, trace: str) -> None:
        """Report an exception of a callback (I13), and restart the process."""
        self.history.violate("I13", trace)
        process.crash()

    def begin(self) -> None:
        """Start the process, and schedule users and faults."""
        self.process.start()
        owners = self.knobs.owners
        for call in self.planned.calls:
            request = self.ledger.requests[call.number] = call.request(owners)
            workflow = users.full_lifecycle(self.ledger, request, call)
            self.send(workflow, f"user {call.number}", call.at_s, request.owner)
        for second in range(1, int(self.knobs.faulty_s) if owners else 0):
            self.send(users.try_all(self.ledger), "a stranger", second, _STRANGER)

    def phases(self) -> Iterable[Phase]:
        """Return the phases after the faults."""
        yield self._settle
        yield self._die_once_more
        yield self._ask_once_more
        yield self._close_everything
        yield self._find_nothing
        yield self._drain

    # --- the phases -------------------------------------------------------------------------------
    def _settle(self) -> bool:
        """Wait until every user has finished."""
        if self.wait(lambda: all(user.is_done for user in self.users), _SETTLE_S):
            return True
        late = [user.name for user in self.users if not user.is_done]
        self.history.violate("I10", f"{len(late)} users do not finish, such as {late[0]}")
        return False

    def _die_once_more(self) -> bool:
        self.remark("once more")
        self.process.kill(power=bool(self.seed % 2))
        self.wait(lambda: not self.process.alive, 1.0)
        return self.wait(lambda: self.process.is_serving, _LEAVE_S)

    def _ask_once_more(self) -> bool:
        """Collect again every request that is not closed."""
        for issued in self.ledger.tickets.values():
            if not issued.close_sent:
                request = issued.request
                workflow = users.collect(self.ledger, issued)
                self.send(workflow, request.body[:8].decode(), owner=request.owner)
        if self.knobs.owners:
            self.send(users.try_all(self.ledger), "a stranger", owner=_STRANGER)
        return self._settle()

    def _close_everything(self) -> bool:
        self.world.run(self.world.now + users.LATE_S)  # late messages have arrived by then
        self.remark("everything is closed")
        for owner in sorted({request.owner for request in self.ledger.requests.values()} - {b""}):
            self.send(users.erase_all(self.ledger, owner), "the one who erases")
        if not self.knobs.owners:
            self.send(users.close_all(self.ledger), "the one who closes")
        if not self._settle():
            return False
        self.world.run(self.world.now + self.knobs.key_window_s + 20)
        return True

    def _find_nothing(self) -> bool:
        """Check that tables and disk are empty (I9)."""
        assert self.process.store is not None
        for name, value in self.process.titanic.snapshot()._asdict().items():
            if value:
                self.history.violate("I9", f"{name} is {value} when everything is closed")
        view = self.process.store.view()
        if view.live_bytes:
            self.history.violate("I9", f"{view.live_bytes} live bytes are left without requests")
        if view.segments > 2 and not self.ledger.flips:
            self.history.violate("I9", f"{view.segments} segments are left without requests")
        return True

    def _drain(self) -> bool:
        process = self.process
        process.retired = True
        process.drain()
        if not self.wait(lambda: not process.alive, _LEAVE_S):
            self.history.violate("I9", "Titanic does not stop after a drain")
        else:
            for what in process.loop.left():
                self.history.violate("I9", f"Titanic has stopped, and leaves {what}")
        return True

    # --- helpers ----------------------------------------------------------------------------------
    def send(self, workflow: Any, name: str, at_s: float = 0.0, owner: bytes = b"") -> None:
        """Start a user at `at_s`, or now."""
        user = User(self.network, workflow, name, owner)
        self.users.append(user)
        self.world.at(at_s, user.begin)

    def _process_says(self, what: str) -> None:
        if self.transcript is not None:
            self.transcript.event("titanic", what)

    def tally(self) -> tuple[int, dict[str, int]]:
        """Return the number of requests, and how often they ended in each way."""
        requests = self.ledger.requests.values()
        outcomes = Counter(request.ended or "not ended" for request in requests)
        return len(requests), dict(sorted(outcomes.items()))

    def lines(self) -> Iterable[str]:
        """Return the lines of the digest."""
        return [f" {self.ledger.lines}"]


class _Reports(logging.Handler):
    """Counts the warnings of damaged records."""

    def __init__(self, ledger: Ledger) -> None:
        super().__init__()
        self._ledger = ledger

    def emit(self, record: logging.LogRecord) -> None:
        """Count a warning, if it reports damage."""
        self._ledger.reported += record.getMessage().startswith("record damaged")


@contextmanager
def _hearing(ledger: Ledger) -> Iterator[None]:
    """While the context is open, count the reports of damage in the log."""
    logger, handler = logging.getLogger("requite.titanic"), _Reports(ledger)
    before = logger.level, logger.propagate
    logger.setLevel(logging.WARNING)
    logger.propagate = False
    logger.addHandler(handler)
    try:
        yield
    finally:
        logger.removeHandler(handler)
        logger.level, logger.propagate = before


class TitanicFaults(Injector):
    """Injects faults into Titanic, its disk, the broker and the services."""

    def __init__(self, simulation: TitanicSimulation) -> None:
        self._run = simulation
        self._process = simulation.process
        self._exchange = simulation.exchange
        super().__init__()

    def actions(self) -> Mapping[str, FaultAction]:
        """Return the action of each kind of fault."""
        return {
            FaultKind.KILL: lambda _fault: self._process.kill(),
            FaultKind.POWER_LOSS: lambda _fault: self._process.kill(power=True),
            FaultKind.SERVICE_DOWN: self._stop_service,
            FaultKind.BROKER_DOWN: self._stop_broker,
            FaultKind.DISK_FULL: self._fill_disk,
            FaultKind.DISK_FAILS: self._fail_sync,
            FaultKind.FLIP: self._flip,
            FaultKind.GARBAGE: self._send_garbage,
        }

    def end(self) -> None:
        """End all faults, and cancel the planned ones."""
        super().end()
        self._exchange.is_well = self._run.network.is_well = True
        self._exchange.down.clear()
        self._broker_returns()
        self._disk_has_room()

    def _stop_service(self, fault: Fault) -> None:
        service = choose(self._run.knobs.services, fault.lot)
        self._exchange.down.add(service)
        self._run.world.after(fault.duration_s, self._exchange.down.discard, service)

    def _stop_broker(self, fault: Fault) -> None:
        self._exchange.broker_is_down = True
        self._run.world.after(fault.duration_s, self._broker_returns)

    def _broker_returns(self) -> None:
        self._exchange.broker_is_down = False

    def _fill_disk(self, fault: Fault) -> None:
        self._process.disk.is_full = True
        self._run.world.after(fault.duration_s, self._disk_has_room)

    def _disk_has_room(self) -> None:
        self._process.disk.is_full = False

    def _fail_sync(self, _fault: Fault) -> None:
        self._process.disk.fails_next_sync = True

    def _flip(self, fault: Fault) -> None:
        self._run.ledger.flips += self._process.disk.flip(Random(fault.lot))

    def _send_garbage(self, fault: Fault) -> None:
        self._run.send(users.garbage(self._run.ledger, Random(fault.lot)), "an intruder")
