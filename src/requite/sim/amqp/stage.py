"""The state that all processes of a run of RPC over AMQP share."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from requite.engine import Engine
from requite.protocols.amqp.caller import AmqpCaller
from requite.protocols.amqp.responder import AmqpResponder
from requite.sim.amqp.knobs import AmqpKnobs
from requite.sim.kernel.history import History
from requite.sim.kernel.process import Supervisor

if TYPE_CHECKING:
    from requite.sim.kernel.network import Network
    from requite.sim.kernel.transcript import Transcript
    from requite.sim.kernel.world import World


@dataclass(frozen=True, slots=True)
class AmqpParts:
    """The engines under test. Mutation tests pass broken ones."""

    caller: Callable[..., Engine] = AmqpCaller
    responder: Callable[..., Engine] = AmqpResponder


@dataclass(frozen=True, slots=True)
class AmqpStage:
    """The state that all processes of a run share. `names`: the numbers of calls, by message id."""

    world: World
    network: Network
    history: History
    supervisor: Supervisor
    knobs: AmqpKnobs
    parts: AmqpParts = field(default_factory=AmqpParts)
    transcript: Transcript | None = None
    names: dict[str, int] = field(default_factory=dict)
