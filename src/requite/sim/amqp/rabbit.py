"""RabbitMQ's process: a model of it that serves connections, dies, and comes back."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from requite.shell.connections import no_framing
from requite.shell.host import Host
from requite.sim.amqp.party import RABBIT
from requite.sim.amqp.server import Do, Server, heartbeat_s
from requite.sim.amqp.server_framing import ServerFraming
from requite.sim.amqp.stage import AmqpStage
from requite.sim.amqp.store import Store
from requite.sim.party import BaseParty
from requite.sim.stream import SimStream


class RabbitParty(BaseParty[AmqpStage]):
    """RabbitMQ. What it holds outlives it, as far as that is durable."""

    kind = "rabbit"
    hub: Server

    def __init__(self, stage: AmqpStage) -> None:
        super().__init__(RABBIT, stage)
        self.store = Store(stage.world, stage.knobs, self.rng)
        self.store.is_awake = lambda: self.alive and not self.frozen

    def make_engine(self) -> Server:
        """Make a server that knows what is on the disk."""
        stage = self.stage
        return Server(self.store, stage.knobs, self.rng, self.put_off, stage.history.tell)

    def put_off(self, delay_s: float, act: Callable[[], None]) -> None:
        """Let the server do something later, unless it has died by then."""
        self.later(delay_s, self.let, act)

    def let(self, act: Callable[[], None]) -> None:
        """Let the server do something now."""
        self.host.submit(Do(act))

    def make_host(self) -> Host:
        """Make a server, and its host."""
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
        """Make RabbitMQ's side of a connection."""
        knobs = self.stage.knobs
        return ServerFraming(knobs.frame_size, heartbeat_s(knobs))

    def started(self) -> None:
        """Listen."""
        super().started()
        self.take_connections()

    def _end(self, what: str) -> None:
        super()._end(what)
        self.store.crash()
