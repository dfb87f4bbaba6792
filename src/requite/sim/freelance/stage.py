"""The state that all processes of a simulated Freelance run share."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from requite.engine import Engine
from requite.protocols.freelance.agent import AgentClient
from requite.protocols.freelance.failover import FailoverClient
from requite.protocols.freelance.server import FreelanceServer
from requite.protocols.freelance.shotgun import ShotgunClient
from requite.protocols.freelance.wire import Model
from requite.sim.freelance.knobs import FreelanceKnobs
from requite.sim.kernel.stage import RunStage

if TYPE_CHECKING:
    pass

_CLIENTS: Final[dict[Model, Callable[..., Engine]]] = {
    Model.FAILOVER: FailoverClient,
    Model.SHOTGUN: ShotgunClient,
    Model.AGENT: AgentClient,
}


@dataclass(frozen=True, slots=True)
class FlpParts:
    """The engines under test. Mutation tests pass broken ones."""

    clients: Mapping[Model, Callable[..., Engine]] = field(default_factory=lambda: _CLIENTS)
    server: Callable[..., Engine] = FreelanceServer


class FlpStage(RunStage[FreelanceKnobs, FlpParts]):
    """The state that all processes of a run share."""
