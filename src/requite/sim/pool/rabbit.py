"""A model of RabbitMQ: exchanges and bindings, connections that break, confirms, a management API.

Each request and each answer takes a network latency. When a connection breaks, a request in flight
may or may not arrive; each end detects the break after its own delay, and then the server requeues
what the client had not acknowledged.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from requite.protocols.amqp.topology import Pool, Queue
from requite.protocols.amqp.wire import FIRST_DEATH_REASON
from requite.sim.rabbitmq.exchanges import DEFAULT, Exchanges
from requite.sim.rabbitmq.message import Entry, SimMessage
from requite.sim.rabbitmq.queue import Consumer, SimQueue

if TYPE_CHECKING:
    from requite.sim.kernel.world import World
    from requite.sim.pool.knobs import PoolKnobs
    from requite.sim.pool.ledger import Ledger


class Refused(Exception):
    """RabbitMQ refuses an operation."""


class QueueNotFound(Refused):
    """The queue does not exist."""


class SimRabbit:
    """The server. It refuses all operations on the queues of `refused_keys`. `api_fails`: how many
    faults make the management API fail now; `api_slow_s`: its additional delay. The API reports
    samples, taken every `sample_s`."""

    def __init__(self, world: World, knobs: PoolKnobs, ledger: Ledger) -> None:
        self.world = world
        self.ledger = ledger
        self.names = Pool("core")
        self.up = True
        self.queues: dict[str, SimQueue] = {}
        self.exchanges = Exchanges()
        self.connections: list[Connection] = []
        self.refused_keys: set[str] = set()
        self.api_fails = 0
        self.api_slow_s = 0.0
        self.sample_s = knobs.sample_s
        self._knobs = knobs
        self._rng = world.rng("rabbit")

    # --- connections ------------------------------------------------------------------------------
    def connect(self, lost: Callable[[str], None]) -> Connection | None:
        """Return a connection, or None if the server is down."""
        if not self.up:
            return None
        connection = Connection(self, self._knobs.latency_s, lost, self._rng.random)
        self.connections.append(connection)
        return connection

    def stop(self) -> None:
        """Kill the server; messages in queues are on disk."""
        self.up = False
        for connection in [*self.connections]:
            connection.cut(0.0, 0.0)

    def start(self) -> None:
        """Start the server again."""
        self.up = True

    # --- exchanges --------------------------------------------------------------------------------
    def declare_pool(self, names: Pool, owner_of: Callable[[Queue], Connection | None]) -> None:
        """Declare the exchanges, queues and bindings of a pool, except the request queues."""
        for name, kind, arguments in names.exchanges():
            self.exchanges.declare(name, kind, arguments)
        for queue in names.queues():
            self.declare(queue.name, queue.arguments, owner_of(queue))
        for binding in names.bindings():
            self.bind(*binding)

    def publish(self, exchange: str, message: SimMessage) -> bool:
        """Route a message; return whether any queue accepted it."""
        if exchange != DEFAULT and exchange not in self.exchanges:
            raise Refused(f"there is no exchange {exchange}")
        if self._put(sorted(self.exchanges.route(exchange, message.key)), message):
            return True
        alternate = self.exchanges.alternate(exchange)
        return alternate is not None and self.publish(alternate, message)

    def _put(self, names: list[str], message: SimMessage) -> bool:
        queues = [self.queues[name] for name in names if name in self.queues]
        for queue in queues:
            queue.put(message)
        return bool(queues) or self.ledger.take_reply(names, message)

    def dead_letter(self, queue: SimQueue, entry: Entry, reason: str) -> None:
        """Publish a message to the dead letter exchange of its queue."""
        message = entry.message
        headers = {FIRST_DEATH_REASON: reason, **message.headers}
        dead = SimMessage(
            message.number, message.key, message.reply_to, message.correlation_id, None, headers
        )
        self.ledger.died(message, reason, entry)
        exchange = str(queue.arguments.get("x-dead-letter-exchange", ""))
        if exchange not in self.exchanges or not self.publish(exchange, dead):
            self.ledger.lost(
                queue.name,
                [message],
                f"dies ({reason}) in a queue that has no dead published exchange",
            )

    # --- queues -----------------------------------------------------------------------------------
    def declare(
        self, name: str, arguments: Mapping[str, Any], owner: Connection | None = None
    ) -> SimQueue:
        """Return a queue; create it if it does not exist."""
        queue = self.queues.get(name)
        if queue is None:
            queue = self.queues[name] = SimQueue(self, name, arguments, owner)
        elif queue.owner is not None and queue.owner is not owner:
            raise Refused(f"{name} is locked")
        elif queue.arguments != dict(arguments):
            raise Refused(f"{name} has other arguments")
        return queue

    def bind(self, exchange: str, queue: str, key: str) -> None:
        """Bind a queue. Raises `QueueNotFound`."""
        self.find(queue)
        self.exchanges.bind(exchange, queue, key)

    def unbind(self, exchange: str, queue: str, key: str) -> None:
        """Remove a binding, if it exists."""
        self.exchanges.unbind(exchange, queue, key)

    def find(self, name: str) -> SimQueue:
        """Return a queue. Raises `QueueNotFound`."""
        if name not in self.queues:
            raise QueueNotFound(f"there is no queue {name}")
        return self.queues[name]

    def delete(self, name: str) -> None:
        """Delete a queue and its messages; its consumers are cancelled."""
        queue = self.find(name)
        del self.queues[name]
        self.exchanges.remove(name)
        self.ledger.lost(name, queue.messages, "is in a queue that is deleted")
        for consumer in queue.consumers:
            consumer.connection.after_latency(consumer.cancelled)

    def check_refused(self, key: str) -> None:
        """Raise `Refused` for a key in `refused_keys`."""
        if key in self.refused_keys:
            raise Refused("internal error")

    # --- the management API -----------------------------------------------------------------------
    def list_queues(self, tell: Callable[[dict[str, bool] | None], None]) -> None:
        """Pass the request queues to `tell`, as they were at a random instant between request and
        answer; None if the API fails."""
        delay_s = (self._knobs.api_s + self.api_slow_s) * (0.5 + self._rng.random())
        looks_at = delay_s * self._rng.random()
        found: list[dict[str, bool] | None] = []
        self.world.after(looks_at, lambda: found.append(self._listed()))
        self.world.after(delay_s, lambda: tell(found[0] if found else None))

    def _listed(self) -> dict[str, bool] | None:
        if self.api_fails or not self.up:
            return None
        return self.request_queues()

    def request_queues(self) -> dict[str, bool]:
        """Return the keys of the request queues, and whether each is bound."""
        exchange, bound = self.names.requests_exchange, self.exchanges.bound
        keys = {self.names.key_of(name): name for name in self.queues}
        return {k: name in bound(exchange, k) for k, name in keys.items() if k is not None}


class Connection:
    """Both ends of one connection."""

    def __init__(
        self,
        rabbit: SimRabbit,
        latency_s: float,
        lost: Callable[[str], None],
        rng: Callable[[], float],
    ) -> None:
        self.rabbit = rabbit
        self.is_open = True
        self._latency_s = latency_s
        self._lost = lost
        self._rng = rng
        self._consumers: list[tuple[SimQueue, Consumer]] = []

    # --- from the client's end --------------------------------------------------------------------
    def ask(self, act: Callable[[], Any], tell: Callable[[Any], None]) -> None:
        """Call `act` in the server; pass the result, or the `Refused` that it raises, to `tell`."""
        if self.is_open:
            self.rabbit.world.after(self._latency_s, self._arrive, act, tell)

    def consume(self, queue: str, consumer: Consumer) -> bool:
        """Add a consumer; return whether that is allowed. Runs in the server."""
        found = self.rabbit.find(queue)
        if not self.is_open or not found.consume(consumer):
            return False
        self._consumers.append((found, consumer))
        return True

    def close(self) -> None:
        """Close the connection; the server requeues unacknowledged messages."""
        if self.is_open:
            self.is_open = False
            self.rabbit.world.after(self._latency_s, self._forget)

    def cut(self, client_delay_s: float, server_delay_s: float) -> None:
        """Break the connection: the client detects it after `client_delay_s`, the server after
        `server_delay_s`."""
        if self.is_open:
            self.is_open = False
            self.rabbit.world.after(client_delay_s, self._lost, "the connection is broken")
            self.rabbit.world.after(server_delay_s, self._forget)

    def _arrive(self, act: Callable[[], Any], tell: Callable[[Any], None]) -> None:
        arrives = self.is_open or (self.rabbit.up and self._rng() < 0.5)
        if arrives:
            try:
                answer = act()
            except Refused as refused:
                answer = refused
            self.after_latency(tell, answer)

    # --- from the server's end --------------------------------------------------------------------
    def after_latency(self, act: Callable[..., None], *args: Any) -> None:
        """Call `act` at the client after the latency, if the connection is still open then."""
        self.rabbit.world.after(self._latency_s, self._if_open, act, args)

    def _if_open(self, act: Callable[..., None], args: tuple[Any, ...]) -> None:
        if self.is_open:
            act(*args)

    def _forget(self) -> None:
        """Remove the consumers and the exclusive queues of the connection."""
        if self in self.rabbit.connections:
            self.rabbit.connections.remove(self)
        for queue, consumer in self._consumers:
            queue.remove_consumer(consumer)
        self._consumers.clear()
        for name in [n for n, q in self.rabbit.queues.items() if q.owner is self]:
            self.rabbit.delete(name)
