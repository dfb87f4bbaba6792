"""One broker of a pair: two hosts in one process, as `requite.broker.Broker` has them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from math import inf
from typing import TYPE_CHECKING, Any, Final

from requite.engine import Drain, Effect, Input, Note, Peer, Wake
from requite.framing import IdentityTable, SocketType, Zmtp
from requite.framing.base import Framing
from requite.pair.standby_gate import StandbyGate
from requite.protocols.binarystar.peer import BinaryStarPeer
from requite.protocols.binarystar.policy import BinaryStarPolicy
from requite.protocols.binarystar.table import PairRole
from requite.protocols.binarystar.view import PairView
from requite.protocols.majordomo.parties import Party
from requite.protocols.majordomo.policy import BrokerPolicy
from requite.shell.host import Host
from requite.shell.link import Link, LinkLimits
from requite.sim.majordomo.roles import Broker, Stage
from requite.sim.majordomo.watch_broker import WatchedBroker
from requite.sim.pair.half import HalfShell

if TYPE_CHECKING:
    from requite.sim.kernel.stream import SimStream
    from requite.sim.paired.knobs import PairedKnobs

_PORT: Final = "pair"
_ROUNDING_S: Final = 1e-6  # see `requite.sim.kernel.process`


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
        self.watch(Wake(), effects)
        return effects

    def watch(self, event: Input, effects: list[Effect]) -> None:
        """Report when the broker serves: dispatches and replies."""
        for effect in effects:
            if effect.__class__ is Note and _is_service(effect):
                self._history.tell("served", self.process)
        super().watch(event, effects)


def _is_service(note: Any) -> bool:
    kind, facts = note.kind, note.facts
    return bool(kind == "dispatched" or (kind == "answered" and facts["status"] == "OK"))


class PairedBroker(Broker):
    """A broker, its half of the pair, and the gate between them; also the gate's `Partner`."""

    watched: WatchedHalf

    def __init__(self, role: PairRole, stage: Stage, knobs: PairedKnobs) -> None:
        super().__init__(stage, role.name.lower())
        self.role = role
        self._policy = BinaryStarPolicy(role, knobs.pair_heartbeat_s)
        self.stood_still_s = 0.0  # the last freeze, until the pair confirms the state

    def make_host(self) -> Host:
        """Return a host with a new broker and a new half of the pair."""
        stage, knobs = self._stage, self._stage.knobs
        self.stood_still_s = 0.0
        engine = stage.parts.broker(knobs.broker_policy)
        self.watched = watched = WatchedHalf(
            engine, self, stage.history, self._call_of, stage.transcript
        )
        self.gate: StandbyGate = stage.parts.gate(watched, self)
        self._make_pair()
        self.identities: IdentityTable[Link] = IdentityTable(
            start=self.rng.getrandbits(32), handover=knobs.handover
        )
        return self.host_of(
            self.gate, knobs.limits, lambda: Zmtp(SocketType.ROUTER), identities=self.identities
        )

    def _make_pair(self) -> None:
        self.half: BinaryStarPeer = self._stage.parts.half(
            self._policy, instance=self.rng.getrandbits(63) + 1
        )
        self._pair_armed = 0
        at = f"{self.role.other.name.lower()}:{_PORT}"
        self.pair = HalfShell(self, self.half, at, self._pair_host)

    def _pair_host(
        self,
        limits: LinkLimits,
        make_framing: Callable[[], Framing],
        *,
        ended: Callable[[Link, str], None],
    ) -> Host:
        return Host(
            self.half,
            self.clock,
            make_framing,
            wake_at=self._wake_pair_at,
            want_flush=lambda: self.later(0.0, self.pair.host.flush),
            deliver=self._pair_told,
            ended=ended,
            stopped=self._pair_stopped,
            limits=limits,
            logger="requite.sim",
        )

    @property
    def failover_s(self) -> float:
        """The silence after which the other broker may take over."""
        return self._policy.failover_s

    # --- for the gate -----------------------------------------------------------------------------
    @property
    def serves(self) -> bool:
        """See `requite.pair.Pair`."""
        return self.pair.serves

    @property
    def view(self) -> PairView:
        """See `requite.pair.Pair`."""
        return self.pair.view

    def vote(self) -> bool:
        """See `requite.pair.Pair`."""
        return self.pair.vote()

    def switch(self) -> None:
        """Switch as an operator does, if possible."""
        if self.alive:
            self.pair.switch()

    def _pair_told(self, _token: Any, view: PairView) -> None:
        self.stood_still_s = 0.0
        self._stage.history.tell("pair_changed", self, view)
        self.host.submit(Wake())

    # --- life -------------------------------------------------------------------------------------
    def started(self) -> None:
        """Listen to all peers, and connect to the other broker."""
        super().started()
        self.network.listen(self, _PORT, self._accept_peer)
        self.pair.dial()
        self.pair.host.wake()

    def thaw(self) -> None:
        """Resume after a freeze; the other broker may have taken over."""
        if self.frozen:
            self.stood_still_s = self.world.now - self._froze_at
        super().thaw()

    def accept(self, stream: SimStream) -> None:
        """Accept the connection of a client or worker."""
        self.adopt(stream, lambda: self._let_in(stream))

    def _let_in(self, stream: SimStream) -> None:
        link = self.host.opened(stream, accepted=True)
        if not self.gate.lets_in():
            self.host.turn_away(link)

    def has_stopped(self) -> None:
        """Accept no more clients, and hand over to the other broker."""
        self.network.listen_no_more(self)
        self.network.listen(self, _PORT, self._accept_peer)
        self.later(0.0, self.pair.host.submit, Drain())

    def _pair_stopped(self) -> None:
        super().has_stopped()

    def _leave(self) -> None:
        self.pair.host.shut()
        super()._leave()

    # --- the link between the two -----------------------------------------------------------------
    def _wake_pair_at(self, at: float) -> None:
        self._pair_armed += 1
        if at != inf:
            late_s = self.pace.timer_late_s * self.rng.random()
            delay_s = max(0.0, at - self.clock()) + late_s
            self.later(delay_s + _ROUNDING_S, self._wake_pair, self._pair_armed)

    def _wake_pair(self, armed: int) -> None:
        if armed == self._pair_armed:
            self.pair.host.wake()

    def _accept_peer(self, stream: SimStream) -> None:
        self.adopt(stream, lambda: self.pair.host.opened(stream, accepted=True))
