"""A process with an endpoint of the scalability protocols: it listens, and stays connected."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from requite.engine import Engine
from requite.framing.base import Limits, Message
from requite.framing.sp import SpStream
from requite.protocols.scalability.device import ScalabilityDevice
from requite.protocols.scalability.policy import PipeOptions
from requite.protocols.scalability.rep import ScalabilityWorker
from requite.protocols.scalability.req import ScalabilityClient
from requite.protocols.scalability.wire import REP, REQ
from requite.sim.kernel.party import MESSAGE_SIZE_MAX, KeepingParty, telling_who_is_expelled
from requite.sim.kernel.stage import RunStage
from requite.sim.scalability.knobs import ScalabilityKnobs
from requite.sim.scalability.stack import IDS
from requite.sim.scalability.topology import BACK, FRONT, Edge
from requite.sim.scalability.watch import Hub

if TYPE_CHECKING:
    from requite.sim.kernel.stream import SimStream


@dataclass(frozen=True, slots=True)
class SpParts:
    """The engines under test. Mutation tests pass broken ones."""

    client: Callable[..., Engine] = ScalabilityClient
    worker: Callable[..., Engine] = ScalabilityWorker
    device: Callable[..., Engine] = ScalabilityDevice


class SpStage(RunStage[ScalabilityKnobs, SpParts]):
    """The state that all processes of a run share."""


class SpFraming(SpStream):
    """The framing of one connection; it reports honest peers whose bytes it refuses."""

    __slots__ = ("_history", "_stream")

    def __init__(self, side: str, stream: SimStream, stage: SpStage) -> None:
        own, peer = (REP, REQ) if side == FRONT else (REQ, REP)
        limits = Limits(message_size_bytes_max=MESSAGE_SIZE_MAX)
        super().__init__(own, peer, in_band=stage.knobs.in_band, limits=limits)
        self._stream = stream
        self._history = stage.history

    def receive(self, chunk: bytes) -> list[Message]:
        """Receive bytes; report if they are refused."""
        with telling_who_is_expelled(self._history, self._stream):
            return super().receive(chunk)


class Party(KeepingParty[SpStage]):
    """A client, a worker or a device."""

    hub: Hub

    def __init__(self, name: str, stage: SpStage, first_id: int | None) -> None:
        super().__init__(name, stage)
        self.first_id = 0  # the first id since the last start
        self._given_id = first_id

    def draw_first_id(self) -> int:
        """Return the first id of this start: at the first start, the knobs may fix it.

        Later starts draw at random, so that ids from before a restart are not reused.
        """
        given_id, self._given_id = self._given_id, None
        self.first_id = self.rng.randrange(IDS) if given_id is None else given_id
        return self.first_id

    def make_hub(self) -> Hub:
        """See `KeepingParty.make_hub`."""
        stage, engine = self.stage, self.make_engine()
        return Hub(engine, self, self.kind, self.first_id, stage.history, stage.transcript)

    def make_framing(self, stream: SimStream, place: PipeOptions, accepted: bool) -> SpFraming:
        """Return a framing for the side of the place, whichever end dials."""
        return SpFraming(place.side, stream, self.stage)

    def started(self) -> None:
        """Listen at each port that peers dial, and dial the listeners."""
        for edge in self.stage.knobs.edges:
            if edge.listener == self.name:
                side = FRONT if edge.upper_dials else BACK
                self.take_connections(edge.port, _place(edge, side))
            if edge.dialler == self.name:
                side = BACK if edge.upper_dials else FRONT
                self.keep(edge.address, _place(edge, side))
        super().started()


def _place(edge: Edge, side: str) -> PipeOptions:
    """Return the place of an edge at one end: only the end that sends requests ranks it."""
    return PipeOptions(side) if side == FRONT else PipeOptions(side, edge.priority, edge.weight)
