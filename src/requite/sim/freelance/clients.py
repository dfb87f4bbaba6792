"""The process of a client."""

from __future__ import annotations

from operator import attrgetter
from typing import Any

from requite.engine import Engine
from requite.errors import CallError
from requite.protocols.freelance.policy import ClientPolicy
from requite.protocols.freelance.wire import Model
from requite.request import RetryPolicy
from requite.sim.freelance.knobs import FlpClientSpec
from requite.sim.freelance.party import Party
from requite.sim.freelance.stage import FlpStage
from requite.sim.kernel.process import Ending
from requite.sim.kernel.user import User


class FlpClient(Party):
    """A client, and its user."""

    kind = "client"

    def __init__(self, spec: FlpClientSpec, stage: FlpStage) -> None:
        super().__init__(spec.name, stage)
        self.spec = spec
        self.user = User(
            self,
            stage.history,
            stage.transcript,
            attrgetter("frames"),
            tries_max=tries_max(spec, stage.knobs.model),
            carries_idempotency=True,
            has_keys=False,
        )

    def make_engine(self) -> Engine:
        """Return a new client engine of the run's model."""
        spec, knobs = self.spec, self.stage.knobs
        policy = ClientPolicy(
            servers=len(spec.servers),
            slots=spec.slots,
            retry=RetryPolicy(attempts=spec.attempts, attempt_timeout=spec.attempt_s),
            ping=knobs.ping,
        )
        return self.stage.parts.clients[knobs.model](policy)

    def started(self) -> None:
        """Connect to all servers."""
        super().started()
        for server in self.spec.servers:
            for _ in range(self.spec.lanes):
                self.keep(server, server)

    def _end(self, what: Ending) -> None:
        super()._end(what)
        self.stage.history.client_died(self.name)

    def deliver(self, token: Any, what: Any) -> None:
        """Give a reply to the user."""
        self.user.deliver(token, what)

    def fail(self, token: Any, error: CallError) -> None:
        """Give an error to the user."""
        self.user.fail(token, error)


def tries_max(spec: FlpClientSpec, model: Model) -> int:
    """Return how often a call may be sent: model two multiplies by the servers; model one tries
    each of several servers once."""
    servers = len(spec.servers)
    if model is Model.SHOTGUN:
        return spec.attempts * servers
    return min(spec.attempts, servers) if model is Model.FAILOVER and servers > 1 else spec.attempts
