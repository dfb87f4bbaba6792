"""The state that all processes of a run share."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Generic, Self, TypeVar

from requite.sim.kernel.network import Network

if TYPE_CHECKING:
    from requite.sim.kernel.history import History
    from requite.sim.kernel.process import Supervisor
    from requite.sim.kernel.simulation import Simulation
    from requite.sim.kernel.transcript import Transcript
    from requite.sim.kernel.world import World

KnobsT = TypeVar("KnobsT")
PartsT = TypeVar("PartsT")


@dataclass(slots=True)
class RunStage(Generic[KnobsT, PartsT]):
    """The state that all processes of a run share; `parts` are the engines under test."""

    world: World
    network: Network
    history: History
    supervisor: Supervisor
    knobs: KnobsT
    parts: PartsT
    transcript: Transcript | None = None

    @classmethod
    def of(cls, run: Simulation, parts: type[PartsT], **more: Any) -> Self:
        """Return the stage of a run; a protocol's stage may have `more` fields."""
        knobs: Any = run.planned.knobs
        return cls(
            run.world,
            Network(run.world, knobs.network),
            run.history,
            run,
            knobs,
            run.options.parts_of(parts),
            run.transcript,
            **more,
        )
