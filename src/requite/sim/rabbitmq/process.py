"""The process of RabbitMQ: it serves connections, crashes and restarts."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from requite.shell.host import Host
from requite.sim.kernel.party import Party, StageT
from requite.sim.kernel.process import Ending
from requite.sim.kernel.stream import SimStream
from requite.sim.rabbitmq.server import Deferred, Server, ServerSettings
from requite.sim.rabbitmq.server_framing import ServerFraming
from requite.sim.rabbitmq.store import Store

RABBIT: Final = "rabbit"
"""The name of its node."""
PORT: Final = "5672"


class RabbitParty(Party[StageT]):
    """RabbitMQ. Durable queues and messages in `store` survive its restarts."""

    kind = "rabbit"
    hub: Server
    listens = (("", None), (PORT, None))

    def __init__(self, stage: StageT, store: Store, settings: ServerSettings) -> None:
        super().__init__(RABBIT, stage)
        self.store = store
        store.rng = self.rng
        store.is_running = lambda: self.alive and not self.frozen
        self._settings = settings

    def make_engine(self) -> Server:
        """Return a server with the queues and messages that are on disk."""
        tell = self.stage.history.tell
        return Server(self.store, self._settings, self.rng, self.defer, tell)

    def defer(self, delay_s: float, act: Callable[[], None]) -> None:
        """Call `act` in the server after `delay_s`, unless it has crashed by then."""
        self.later(delay_s, self.perform, act)

    def perform(self, act: Callable[[], None]) -> None:
        """Call `act` in the server now, as an input of its engine."""
        self.host.submit(Deferred(act))

    def make_host(self) -> Host:
        """Return a host with a new server."""
        self.hub = self.make_engine()
        return self.host_of_hub()

    def make_framing(self, stream: SimStream, place: Any, accepted: bool) -> ServerFraming:
        """Return the server's framing for a new connection."""
        return ServerFraming(self._settings.frame_size, self._settings.heartbeat_s)

    def _end(self, what: Ending) -> None:
        super()._end(what)
        self.store.crash()
