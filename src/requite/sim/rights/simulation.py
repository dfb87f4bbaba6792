"""A run of a broker with an access file, which changes under load."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from requite.protocols.majordomo.broker import MajordomoBroker
from requite.sim.kernel.fault_injection import FaultAction, FaultInjector
from requite.sim.kernel.faults import Fault
from requite.sim.kernel.plan import Plan
from requite.sim.kernel.result import Options
from requite.sim.majordomo.cast import MajordomoCast
from requite.sim.majordomo.parties import ClientProcess, Stage
from requite.sim.majordomo.simulation import MajordomoSimulation
from requite.sim.rights.checkers import RIGHTS_CHECKERS
from requite.sim.rights.knobs import RightsKnobs
from requite.sim.rights.operator import CHANGES, Operator
from requite.sim.rights.processes import RightsBroker, RightsClient, RightsWorker
from requite.sim.rights.strangers import Stranger

_REDIAL_S = 10.0  # the longest pause of a worker that was denied


class RightsCast(MajordomoCast):
    """A broker with an access file, its operator, clients, workers and strangers."""

    make_client = RightsClient
    make_worker = RightsWorker
    make_intruder = Stranger
    brokers: Sequence[RightsBroker]

    def __init__(self, stage: Stage, knobs: RightsKnobs) -> None:
        self.operator = Operator(knobs)
        strangers = len(knobs.members) - len(knobs.clients) - len(knobs.workers)
        super().__init__(stage, [RightsBroker(stage, self.operator)], strangers)


class RightsInjector(FaultInjector):
    """Also changes the access file."""

    _cast: RightsCast

    def actions(self) -> Mapping[str, FaultAction]:
        """Return the action of each kind of fault."""
        return {**super().actions(), **dict.fromkeys(CHANGES, self.change_file)}

    def change_file(self, fault: Fault) -> None:
        """Change the access file, and restore it later."""
        number = self._cast.operator.change(fault.kind, fault.lot)
        self._reload()
        self._world.after(fault.duration_s, self._undo, number)

    def end(self) -> None:
        """End all faults; restore the access file."""
        super().end()
        self._cast.operator.restore()
        self._reload()

    def _undo(self, number: int) -> None:
        if not self._over:
            self._cast.operator.undo(number)
            self._reload()

    def _reload(self) -> None:
        for broker in self._cast.brokers:
            broker.read_again()


def left_in_usages(engine: object) -> Iterator[str]:
    """Yield what a broker without clients still counts as used by principals."""
    assert isinstance(engine, MajordomoBroker)
    for principal, usage in engine.authorizer.usages.items():
        for name in ("count", "size", "joined", "named", "untold"):
            if found := getattr(usage, name):
                yield f"the broker counts {found} as {name} of {principal}"


class RightsSimulation(MajordomoSimulation):
    """A run with a broker that has an access file."""

    knobs_type = RightsKnobs
    checkers = RIGHTS_CHECKERS
    knobs: RightsKnobs
    cast: RightsCast

    def __init__(self, plan: Plan, options: Options) -> None:
        super().__init__(plan, options)
        self.injector = RightsInjector(self.cast)

    def make_cast(self) -> RightsCast:
        """Create all processes."""
        return RightsCast(self.make_stage(), self.knobs)

    def settle_s(self) -> float:
        """Return the time in seconds in which everything must settle once faults have ended."""
        return super().settle_s() + 2 * _REDIAL_S

    def _drain_clients(self) -> bool:
        """Check I18, too: without clients, nothing counts as used."""
        has_passed = super()._drain_clients()
        left = [*left_in_usages(self.cast.broker.hub.engine)]
        for what in left:
            self.history.violate("I18", f"all clients have left, but {what}")
        return has_passed and not left

    def services_of(self, client: ClientProcess) -> Sequence[str]:
        """Return the services that a client may call."""
        rights = self.cast.operator.file.users[self.knobs.member(client.name).user].rights
        return [name for name in self.knobs.services if rights.match("call", name)]
