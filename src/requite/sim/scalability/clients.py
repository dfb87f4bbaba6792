"""The process of a client."""

from __future__ import annotations

from typing import Any, Final

from requite.engine import Engine
from requite.errors import CallError
from requite.protocols.scalability.policy import ATTEMPTS_UNLIMITED, ReqPolicy
from requite.request import RetryPolicy
from requite.sim.kernel.process import Ending
from requite.sim.kernel.user import User
from requite.sim.scalability.knobs import SpClientSpec
from requite.sim.scalability.party import Party, SpStage
from requite.sim.scalability.workload import body_of

_MANY: Final = 1 << 30


class SpClient(Party):
    """A client, and its user."""

    kind = "client"

    def __init__(self, spec: SpClientSpec, stage: SpStage) -> None:
        super().__init__(spec.name, stage, spec.first_id)
        self.spec = spec
        self.user = User(
            self,
            stage.history,
            stage.transcript,
            body_of,
            tries_max=spec.tries or _MANY,
            carries_idempotency=True,
            has_keys=False,
            soon=spec.soon,
        )

    def make_engine(self) -> Engine:
        """Return a new client engine."""
        spec = self.spec
        policy = ReqPolicy(
            slots=spec.slots,
            retry=RetryPolicy(
                attempts=spec.tries or ATTEMPTS_UNLIMITED, attempt_timeout=spec.resend_s
            ),
            hold=spec.hold,
        )
        first_id = self.draw_first_id()
        return self.stage.parts.client(policy, first_id=first_id)

    def _end(self, what: Ending) -> None:
        super()._end(what)
        self.stage.history.client_died(self.name)

    def deliver(self, token: Any, what: Any) -> None:
        """Give a reply to the user."""
        self.user.deliver(token, what)

    def fail(self, token: Any, error: CallError) -> None:
        """Give an error to the user."""
        self.user.fail(token, error)
