"""The process of a client."""

from __future__ import annotations

from operator import attrgetter
from typing import Any

from requite.engine import Engine
from requite.errors import CallError
from requite.protocols.majordomo.calls import ClientPolicy
from requite.protocols.majordomo.dialects import by_version
from requite.request import RetryPolicy
from requite.sim.kernel.process import Ending
from requite.sim.kernel.user import User
from requite.sim.majordomo.knobs import ClientSpec
from requite.sim.majordomo.roles import Dialler, Stage
from requite.sim.majordomo.watch import WatchedClient


class ClientProcess(Dialler):
    """A client, and its user."""

    watch = WatchedClient

    def __init__(self, spec: ClientSpec, stage: Stage) -> None:
        super().__init__(spec.name, spec.identity, stage)
        self.spec = spec
        self.engine_options: dict[str, Any] = {}
        self.user = User(
            self,
            stage.history,
            stage.transcript,
            attrgetter("frames"),
            tries_max=spec.tries,
            carries_idempotency=spec.version == "0.3",
            has_keys=True,
        )

    def make_engine(self) -> Engine:
        """Return a new client engine."""
        spec, knobs = self.spec, self._stage.knobs
        first = self._draw_sequence() if spec.first_sequence is None else spec.first_sequence
        self.rng.random()  # unused; keeps the later draws of saved seeds and plans as they were
        policy = ClientPolicy(
            slots=spec.slots,
            retry=RetryPolicy(attempts=spec.tries, attempt_timeout=spec.attempt_timeout_s),
            heartbeat=knobs.heartbeat,
            connections_max=8,
        )
        dialect = by_version(spec.version)
        return self._stage.parts.client(
            dialect, policy, rng=self.rng.random, first_sequence=first, **self.engine_options
        )

    def _draw_sequence(self) -> int:
        """Draw the first sequence number; every second start, one that is about to wrap."""
        return (1 << 32) - 8 if self.rng.random() < 0.5 else self.rng.getrandbits(32)

    def _end(self, what: Ending) -> None:
        super()._end(what)
        self._stage.history.client_died(self.name)

    def deliver(self, token: Any, what: Any) -> None:
        """Give a reply to the user."""
        self.user.deliver(token, what)

    def fail(self, token: Any, error: CallError) -> None:
        """Give an error to the user."""
        self.user.fail(token, error)
