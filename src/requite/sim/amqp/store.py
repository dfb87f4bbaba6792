"""The queues of a run of RPC over AMQP; it declares what the engines under test do not declare."""

from __future__ import annotations

from typing import Final

from requite.protocols.amqp.topology import SERVICE_QUEUE_ARGUMENTS, Pool, RequestQueueLimits
from requite.sim.amqp.knobs import AmqpKnobs
from requite.sim.kernel.world import World
from requite.sim.rabbitmq.store import Store

POOL: Final = Pool("core")


class AmqpStore(Store):
    """The queues, exchanges and bindings of a run."""

    def __init__(self, world: World, knobs: AmqpKnobs) -> None:
        super().__init__(world, knobs.sync_s)
        self._knobs = knobs
        self._declare_fixtures()

    def _declare_fixtures(self) -> None:
        """Declare the exchanges and queues that the engines under test do not declare."""
        if self._knobs.pool:
            self.exchanges.declare(POOL.requests_exchange, "direct")
            self.exchanges.declare(POOL.control_exchange, "fanout")
            self.exchanges.declare(POOL.drain_exchange, "fanout")
            if self._knobs.has_activity:
                self.exchanges.declare(POOL.activity_exchange, "fanout")
        for service in self._knobs.services:
            self.declare_service_queue(service)

    def declare_service_queue(self, service: str) -> None:
        """Declare the queue of a service, unless its workers do that."""
        if self._knobs.pool:
            limits = RequestQueueLimits(delivery_limit=self._knobs.attempts_max - 1)
            queue = POOL.request_queue_to_declare(service, limits)
            self.declare(queue.name, queue.arguments)
            self.exchanges.bind(POOL.requests_exchange, queue.name, service)
        elif self._knobs.classic:
            self.declare(service, {})
        elif self._knobs.lossless:
            self.declare(service, SERVICE_QUEUE_ARGUMENTS)

    def queue_of(self, service: str) -> str:
        """Return the name of the queue of a service."""
        return POOL.request_queue(service) if self._knobs.pool else service
