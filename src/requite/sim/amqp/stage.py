"""The state that all processes of a run of RPC over AMQP share."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from requite.engine import Engine
from requite.protocols.amqp.caller import AmqpCaller
from requite.protocols.amqp.responder import AmqpResponder
from requite.sim.amqp.knobs import AmqpKnobs
from requite.sim.kernel.stage import RunStage

if TYPE_CHECKING:
    pass


@dataclass(frozen=True, slots=True)
class AmqpParts:
    """The engines under test. Mutation tests pass broken ones."""

    caller: Callable[..., Engine] = AmqpCaller
    responder: Callable[..., Engine] = AmqpResponder


@dataclass(slots=True)
class AmqpStage(RunStage[AmqpKnobs, AmqpParts]):
    """The state that all processes of a run share. `names`: the numbers of calls, by message id."""

    names: dict[str, int] = field(default_factory=dict)
