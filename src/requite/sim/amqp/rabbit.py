"""The process of RabbitMQ: it serves connections, crashes and restarts."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from requite.shell.connections import no_framing
from requite.shell.host import Host
from requite.sim.amqp.party import RABBIT
from requite.sim.amqp.server import Deferred, Server, heartbeat_s
from requite.sim.amqp.server_framing import ServerFraming
from requite.sim.amqp.stage import AmqpStage
from requite.sim.amqp.store import Store
from requite.sim.kernel.party import BaseParty
from requite.sim.kernel.stream import SimStream


class RabbitParty(BaseParty[AmqpStage]):
    """RabbitMQ. Durable queues and messages survive its restarts."""

    kind = "rabbit"
    hub: Server

    def __init__(self, stage: AmqpStage) -> None:
        super().__init__(RABBIT, stage)
        self.store = Store(stage.world, stage.knobs, self.rng)
        self.store.is_running = lambda: self.alive and not self.frozen

    def make_engine(self) -> Server:
        """Return a server with the queues and messages that are on disk."""
        stage = self.stage
        return Server(self.store, stage.knobs, self.rng, self.defer, stage.history.tell)

    def defer(self, delay_s: float, act: Callable[[], None]) -> None:
        """Call `act` in the server after `delay_s`, unless it has crashed by then."""
        self.later(delay_s, self.perform, act)

    def perform(self, act: Callable[[], None]) -> None:
        """Call `act` in the server now, as an input of its engine."""
        self.host.submit(Deferred(act))

    def make_host(self) -> Host:
        """Return a host with a new server."""
        self.hub = self.make_engine()
        return Host(
            self.hub,
            self.clock,
            no_framing,
            wake_at=self.wake_at,
            want_flush=self.want_flush,
            stopped=self.has_stopped,
            limits=self.stage.knobs.limits,
            logger="requite.sim",
        )

    def make_framing(self, stream: SimStream, place: Any, accepted: bool) -> ServerFraming:
        """Return the server's framing for a new connection."""
        knobs = self.stage.knobs
        return ServerFraming(knobs.frame_size, heartbeat_s(knobs))

    def started(self) -> None:
        """Accept connections."""
        super().started()
        self.take_connections()

    def _end(self, what: str) -> None:
        super()._end(what)
        self.store.crash()
