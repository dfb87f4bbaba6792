"""The queues of RabbitMQ in a run of a pool. The ledger hears what happens to each request."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from requite.protocols.amqp.properties import altered_properties
from requite.protocols.amqp.topology import Pool
from requite.protocols.amqp.wire import FIRST_DEATH_REASON
from requite.sim.pool.ledger import number_in
from requite.sim.rabbitmq.published import PublishedMessage, published_message
from requite.sim.rabbitmq.queue import Entry, Queue
from requite.sim.rabbitmq.store import Store

if TYPE_CHECKING:
    from requite.sim.kernel.world import World
    from requite.sim.pool.knobs import PoolKnobs
    from requite.sim.pool.ledger import Ledger


class PoolStore(Store):
    """The queues, exchanges and bindings of a run."""

    def __init__(self, world: World, knobs: PoolKnobs, ledger: Ledger) -> None:
        super().__init__(world, sync_s=0.0)
        self._ledger = ledger
        self.names = Pool("core")
        self.sample_s = knobs.sample_s

    # --- messages ---------------------------------------------------------------------------------
    def received(
        self, exchange: str, key: str, header: bytes, body: bytes, direct: str
    ) -> PublishedMessage:
        """Return a message that a client published, with the number of its request."""
        message = published_message(exchange, key, header, body, direct, number_in(body))
        self._ledger.published(message)
        return message

    def unroutable(self, message: PublishedMessage) -> None:
        """Record a message that no queue takes."""
        self._ledger.unroutable(message)

    def queued(self, name: str, message: PublishedMessage) -> None:
        """Record a message that is added to a queue."""
        self._ledger.queued(name, message)

    def acknowledged(self, name: str, message: PublishedMessage) -> None:
        """Record a message that is acknowledged."""
        self._ledger.acknowledged(name, message)

    def dead_letter(self, queue: Queue, entry: Entry, reason: str) -> None:
        """Publish a message to the dead letter exchange of its queue."""
        message = entry.message
        headers = {FIRST_DEATH_REASON: reason, **message.properties.headers}
        header = altered_properties(message.header, "", lambda name: name in headers, headers)
        properties = message.properties._replace(expiration="", headers=headers)
        dead = replace(message, header=header, properties=properties)
        self._ledger.died(message, reason)
        exchange = str(queue.arguments.get("x-dead-letter-exchange", ""))
        names = self.route(exchange, dead.key) if exchange in self.exchanges else []
        if not names:
            text = f"dies ({reason}) in a queue that has no dead letter exchange"
            self._ledger.lost(queue.name, [message], text)
        self.put(names, dead)

    # --- queues -----------------------------------------------------------------------------------
    def unbind(self, exchange: str, queue: str, key: str) -> None:
        """Remove a binding for a manager."""
        self._ledger.unbound(key)
        super().unbind(exchange, queue, key)

    def delete(self, name: str) -> Queue:
        """Delete a queue and its messages."""
        key = self.names.key_of(name)
        if key is not None and name in self.exchanges.bound(self.names.requests_exchange, key):
            self._ledger.deleted_while_bound(key)
        queue = super().delete(name)
        self._ledger.lost(name, queue.messages, "is in a queue that is deleted")
        return queue

    def refuse(self, key: str) -> None:
        """Refuse all operations on the queue of a key."""
        self.forbidden.add(self.names.request_queue(key))

    def allow(self, key: str) -> None:
        """End `refuse`."""
        self.forbidden.discard(self.names.request_queue(key))

    def request_queues(self) -> dict[str, bool]:
        """Return the keys of the request queues, and whether each is bound."""
        exchange, bound = self.names.requests_exchange, self.exchanges.bound
        keys = {self.names.key_of(name): name for name in self.queues}
        return {k: name in bound(exchange, k) for k, name in keys.items() if k is not None}
