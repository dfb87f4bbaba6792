"""One broker of a pair: the unchanged `requite.Broker` with its `Pair`, on virtual time."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, Final

from requite.broker import Broker
from requite.engine import Effect, Note, Peer, Wake
from requite.pair.standby_gate import StandbyGate
from requite.protocols.binarystar.policy import BinaryStarPolicy
from requite.protocols.binarystar.table import PairRole
from requite.protocols.binarystar.view import PairView
from requite.protocols.majordomo.broker import MajordomoBroker
from requite.protocols.majordomo.parties import Party
from requite.protocols.majordomo.policy import BrokerPolicy
from requite.sim.kernel import virtual
from requite.sim.majordomo.parties import Stage
from requite.sim.majordomo.watch_broker import WatchedBroker
from requite.sim.pair.server import PairProgram, SimPair

if TYPE_CHECKING:
    from requite.chronicle import Chronicle
    from requite.pair import Pair
    from requite.shell.host import Host
    from requite.sim.paired.knobs import PairedKnobs

FRONT: Final = 5555


class WatchedHalf(WatchedBroker):
    """The engine behind the gate, under observation; the gate uses it like the engine."""

    process: PairedBroker

    @property
    def policy(self) -> BrokerPolicy:
        """The policy of the broker."""
        policy: BrokerPolicy = self.engine.policy  # type: ignore[attr-defined]
        return policy

    @property
    def parties(self) -> Mapping[Peer, Party]:
        """The peers of the broker."""
        parties: Mapping[Peer, Party] = self.engine.parties  # type: ignore[attr-defined]
        return parties

    def step_down(self, reason: str, now: float) -> list[Effect]:
        """Step down, under observation."""
        effects: list[Effect] = self.engine.step_down(reason, now)  # type: ignore[attr-defined]
        self._current = Wake()
        self._watch(effects)
        return effects

    def _watch(self, effects: list[Effect]) -> None:
        """Report when the broker serves: dispatches and replies."""
        for effect in effects:
            if effect.__class__ is Note and _is_service(effect):
                self._tell("served", self.process)
        super()._watch(effects)


def _is_service(note: Any) -> bool:
    kind, facts = note.kind, note.facts
    return bool(kind == "dispatched" or (kind == "answered" and facts["status"] == "OK"))


class SimBroker(Broker):
    """A real `Broker` with the engine and the gate under test, and an observer between them."""

    hub: WatchedHalf
    engine: MajordomoBroker

    def __init__(self, process: PairedBroker) -> None:
        self._process = process
        knobs = process.stage.knobs
        super().__init__(
            f"tcp://localhost:{FRONT}",
            policy=knobs.broker_policy,
            handover=knobs.handover,
            links=knobs.limits,
            pair=process.pair,
        )

    def _make_engine(
        self, policy: BrokerPolicy, origin: bytes, chronicle: Chronicle | None
    ) -> MajordomoBroker:
        """Return the engine under test."""
        make: Callable[..., Any] = self._process.stage.parts.broker
        self.engine = make(policy, origin=origin, chronicle=chronicle)
        return self.engine

    def _make_gate(self, engine: MajordomoBroker, pair: Pair) -> StandbyGate:
        """Return the gate under test, before an engine that is observed."""
        self.hub = WatchedHalf(engine, self._process)
        return self._process.stage.parts.gate(self.hub, pair)

    @property
    def host(self) -> Host:
        """The host of the connections with clients and workers."""
        return self._shell.host


class PairedBroker(PairProgram):
    """A broker of a pair; `shell` is new after each start."""

    kind = "broker"
    shell: SimBroker

    def __init__(self, role: PairRole, stage: Stage, knobs: PairedKnobs) -> None:
        super().__init__(role, stage, self._main)
        self.stage = stage
        self.failover_s = BinaryStarPolicy(role, knobs.pair_heartbeat_s).failover_s
        self.stood_still_s = 0.0  # the last freeze, until the pair confirms the state
        self._heartbeat_s = knobs.pair_heartbeat_s

    def make(self) -> None:
        """Create the event loop, the pair and the broker of a new start."""
        super().make()
        self.stood_still_s = 0.0
        with virtual.process(self):
            self.pair = SimPair(self.role, self.stage.parts.half, self._heartbeat_s, self._changed)
            self.shell = SimBroker(self)

    @property
    def hub(self) -> WatchedHalf:
        """The engine behind the gate, under observation."""
        return self.shell.hub

    @property
    def host(self) -> Host:
        """The host of the connections with clients and workers."""
        return self.shell.host

    def asks(self, place: Any) -> bool:
        """Return False: the broker sends no requests of its own."""
        return False

    async def _main(self) -> None:
        await self.shell.serve()

    def _changed(self, view: PairView) -> None:
        self.stood_still_s = 0.0
        self.stage.history.tell("pair_changed", self, view)

    def thaw(self) -> None:
        """Resume after a freeze; the other broker may have taken over."""
        if self.frozen:
            self.stood_still_s = self.world.now - self._froze_at
        super().thaw()
