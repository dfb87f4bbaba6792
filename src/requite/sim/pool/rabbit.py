"""A model of RabbitMQ: exchanges and bindings, connections that break, confirms, a management API.

Whatever is asked takes a while to arrive and a while to be answered. When a connection breaks, what
was under way arrives or does not; each end learns of it in its own time, and the server gives back
what the other end held.
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
    from requite.sim.pool.knobs import PoolKnobs
    from requite.sim.pool.ledger import Ledger
    from requite.sim.world import World


class Refused(Exception):
    """RabbitMQ refuses what it is asked for."""


class Absent(Refused):
    """There is no such queue."""


class SimRabbit:
    """The server. `cursed` are keys for whose queues it refuses everything; `api_fails` and
    `api_slow_s` are the troubles of its management API, which knows how things were at the last
    full `sample_s`."""

    def __init__(self, world: World, knobs: PoolKnobs, ledger: Ledger) -> None:
        self.world = world
        self.ledger = ledger
        self.names = Pool("core")
        self.up = True
        self.queues: dict[str, SimQueue] = {}
        self.exchanges = Exchanges()
        self.connections: list[Connection] = []
        self.cursed: set[str] = set()
        self.api_fails = 0
        self.api_slow_s = 0.0
        self.sample_s = knobs.sample_s
        self._knobs = knobs
        self._rng = world.rng("rabbit")

    # --- connections ------------------------------------------------------------------------------
    def connect(self, lost: Callable[[str], None]) -> Connection | None:
        """Return a connection, or None if the server does not run."""
        if not self.up:
            return None
        connection = Connection(self, self._knobs.latency_s, lost, self._rng.random)
        self.connections.append(connection)
        return connection

    def go_down(self) -> None:
        """Stop, as with SIGKILL: what queues hold is on the disk."""
        self.up = False
        for connection in [*self.connections]:
            connection.cut(0.0, 0.0)

    def come_up(self) -> None:
        """Start again."""
        self.up = True

    # --- exchanges --------------------------------------------------------------------------------
    def declare_pool(self, names: Pool, owner_of: Callable[[Queue], Connection | None]) -> None:
        """Declare what a pool has beside its request queues, as its topology says."""
        for name, kind, arguments in names.exchanges():
            self.exchanges.declare(name, kind, arguments)
        for queue in names.queues():
            self.declare(queue.name, queue.arguments, owner_of(queue))
        for binding in names.bindings():
            self.bind(*binding)

    def publish(self, exchange: str, message: SimMessage) -> bool:
        """Route a message; tell whether any queue took it."""
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
        return bool(queues) or self.ledger.takes(names, message)

    def bury(self, queue: SimQueue, entry: Entry, reason: str) -> None:
        """Let a message die: it goes to the dead letter exchange of its queue."""
        message = entry.message
        headers = {FIRST_DEATH_REASON: reason, **message.headers}
        dead = SimMessage(
            message.number, message.key, message.reply_to, message.correlation_id, None, headers
        )
        self.ledger.died(message, reason, entry)
        exchange = str(queue.arguments.get("x-dead-letter-exchange", ""))
        if exchange not in self.exchanges or not self.publish(exchange, dead):
            self.ledger.destroyed(
                queue.name,
                [message],
                f"dies ({reason}) in a queue that has no dead letter exchange",
            )

    # --- queues -----------------------------------------------------------------------------------
    def declare(
        self, name: str, arguments: Mapping[str, Any], owner: Connection | None = None
    ) -> SimQueue:
        """Make a queue, unless there is one."""
        queue = self.queues.get(name)
        if queue is None:
            queue = self.queues[name] = SimQueue(self, name, arguments, owner)
        elif queue.owner is not None and queue.owner is not owner:
            raise Refused(f"{name} is locked")
        elif queue.arguments != dict(arguments):
            raise Refused(f"{name} has other arguments")
        return queue

    def bind(self, exchange: str, queue: str, key: str) -> None:
        """Bind a queue."""
        self.find(queue)
        self.exchanges.bind(exchange, queue, key)

    def unbind(self, exchange: str, queue: str, key: str) -> None:
        """Unbind a queue; there may be no such binding."""
        self.exchanges.unbind(exchange, queue, key)

    def find(self, name: str) -> SimQueue:
        """Return a queue. Raises `Absent`."""
        if name not in self.queues:
            raise Absent(f"there is no queue {name}")
        return self.queues[name]

    def delete(self, name: str) -> None:
        """Delete a queue with all that is in it; its consumers are told."""
        queue = self.find(name)
        del self.queues[name]
        self.exchanges.remove(name)
        self.ledger.destroyed(name, queue.content, "is in a queue that is deleted")
        for consumer in queue.consumers:
            consumer.connection.after_latency(consumer.cancelled)

    def check_curse(self, key: str) -> None:
        """Refuse what concerns a cursed key."""
        if key in self.cursed:
            raise Refused("internal error")

    # --- the management API -----------------------------------------------------------------------
    def list_queues(self, tell: Callable[[dict[str, bool] | None], None]) -> None:
        """Tell which request queues there are, as of some time between question and answer."""
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
        """Return the request queues, by key: whether each is bound."""
        exchange, bound = self.names.requests_exchange, self.exchanges.bound
        keys = {self.names.key_of(name): name for name in self.queues}
        return {k: name in bound(exchange, k) for k, name in keys.items() if k is not None}


class Connection:
    """One connection, from either end."""

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
        """Have the server do something; `tell` gets what it returns, or the `Refused` it raises."""
        if self.is_open:
            self.rabbit.world.after(self._latency_s, self._arrive, act, tell)

    def consume(self, queue: str, consumer: Consumer) -> bool:
        """Consume (a server's act); tell whether that is allowed."""
        found = self.rabbit.find(queue)
        if not self.is_open or not found.consume(consumer):
            return False
        self._consumers.append((found, consumer))
        return True

    def close(self) -> None:
        """Say goodbye; the server takes back what was held."""
        if self.is_open:
            self.is_open = False
            self.rabbit.world.after(self._latency_s, self._forget)

    def cut(self, told_s: float, noticed_s: float) -> None:
        """Break: this end learns of it after `told_s`, the server after `noticed_s`."""
        if self.is_open:
            self.is_open = False
            self.rabbit.world.after(told_s, self._lost, "the connection is broken")
            self.rabbit.world.after(noticed_s, self._forget)

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
        """Let something reach the client's end, if the connection lasts until then."""
        self.rabbit.world.after(self._latency_s, self._if_open, act, args)

    def _if_open(self, act: Callable[..., None], args: tuple[Any, ...]) -> None:
        if self.is_open:
            act(*args)

    def _forget(self) -> None:
        """Take back what the other end held, and what was its own."""
        if self in self.rabbit.connections:
            self.rabbit.connections.remove(self)
        for queue, consumer in self._consumers:
            queue.lose(consumer)
        self._consumers.clear()
        for name in [n for n, q in self.rabbit.queues.items() if q.owner is self]:
            self.rabbit.delete(name)
