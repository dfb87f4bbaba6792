"""The process of a client."""

from __future__ import annotations

from typing import Any, Final

from requite.engine import Engine
from requite.errors import CallError
from requite.protocols.amqp.policy import CallerPolicy
from requite.protocols.amqp.topology import Destination
from requite.request import Partial, Reply, RetryPolicy
from requite.sim.amqp.knobs import AmqpClientSpec
from requite.sim.amqp.party import AmqpParty
from requite.sim.amqp.stage import AmqpStage
from requite.sim.amqp.store import POOL
from requite.sim.kernel.process import Ending
from requite.sim.kernel.user import User
from requite.sim.kernel.workload import CallPlan
from requite.sim.rabbitmq.server_methods import pack, unpack

_ORIGIN_SIZE: Final = 8


class AmqpClient(AmqpParty):
    """A client, and its user. A body packs several frames, so that tests can check its parts."""

    kind = "client"

    def __init__(self, spec: AmqpClientSpec, stage: AmqpStage) -> None:
        super().__init__(spec.name, stage)
        self.spec = spec
        self.user = User(
            self,
            stage.history,
            stage.transcript,
            _body,
            tries_max=spec.attempts,
            carries_idempotency=True,
            has_keys=True,
        )

    def make_engine(self) -> Engine:
        """Return a new caller engine."""
        spec, knobs = self.spec, self.stage.knobs
        policy = CallerPolicy(
            slots=spec.slots,
            retry=RetryPolicy(attempts=spec.attempts, attempt_timeout=spec.attempt_s),
            heartbeat=knobs.heartbeat,
            confirms=spec.confirms,
            direct_reply=spec.direct_reply,
            persistent=knobs.pool,
        )
        destination = POOL.destination if knobs.pool else Destination()
        origin = self.rng.randbytes(_ORIGIN_SIZE)
        first = (1 << 32) - 8 if self.rng.random() < 0.5 else self.rng.getrandbits(32)
        return self.stage.parts.caller(policy, destination, origin=origin, first_sequence=first)

    def _end(self, what: Ending) -> None:
        super()._end(what)
        self.stage.history.client_died(self.name)

    def deliver(self, token: Any, what: Any) -> None:
        """Pass a reply to the user."""
        [body] = what.frames
        frames = tuple(unpack(body) or (body,))
        if isinstance(what, Partial):
            self.user.deliver(token, Partial(frames, what.index))
        else:
            assert isinstance(what, Reply)
            reply = Reply(frames, what.status, what.attempts, what.elapsed)
            self.user.deliver(token, reply)

    def fail(self, token: Any, error: CallError) -> None:
        """Pass an error to the user."""
        self.user.fail(token, error)


def _body(plan: CallPlan) -> list[bytes]:
    return [pack(plan.frames)]
