"""RabbitMQ in a run of a pool.

Managers connect by AMQP (`requite.sim.rabbitmq`), and use the management API. Callers and workers,
which are not requite's, have a method call for each AMQP method, which takes the network's latency
each way. When a connection breaks, a request in flight may or may not arrive; each end detects the
break after its own delay, and then the server requeues what the client had not acknowledged.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any, NamedTuple
from urllib.parse import unquote

from requite.protocols.amqp.properties import Properties, altered_properties, encode_properties
from requite.protocols.amqp.topology import Pool
from requite.protocols.amqp.wire import FIRST_DEATH_REASON
from requite.sim.pool.ledger import REPLIES
from requite.sim.rabbitmq.exchanges import DEFAULT
from requite.sim.rabbitmq.message import Entry, SimMessage
from requite.sim.rabbitmq.published import PublishedMessage, published_message
from requite.sim.rabbitmq.queue import Consumer, SimQueue
from requite.sim.rabbitmq.store import Store, StoredQueue

if TYPE_CHECKING:
    from requite.sim.kernel.world import World
    from requite.sim.pool.knobs import PoolKnobs
    from requite.sim.pool.ledger import Ledger
    from requite.sim.rabbitmq.process import RabbitParty


class Refused(Exception):
    """RabbitMQ refuses an operation."""


class ApiAnswer(NamedTuple):
    """An answer of the management API."""

    status: int
    content: Any = None


class ReplyQueue(StoredQueue):
    """The reply queue of a caller: the ledger takes its messages."""

    def put(self, message: SimMessage) -> None:
        """Pass a reply to the ledger."""
        ledger: Any = self._store.ledger
        ledger.take_reply(self.name, message)


class SimRabbit(Store):
    """The server. `api_fails`: how many faults make the management API fail now; `api_slow_s`: its
    additional delay. The API reports samples, taken every `sample_s`."""

    process: RabbitParty[Any]
    ledger: Ledger

    def __init__(self, world: World, knobs: PoolKnobs, ledger: Ledger) -> None:
        super().__init__(world, sync_s=0.0)
        self.ledger = ledger
        self.names = Pool("core")
        self.connections: list[Connection] = []
        self.api_fails = 0
        self.api_slow_s = 0.0
        self.sample_s = knobs.sample_s
        self._knobs = knobs
        for i in range(knobs.callers):
            name = f"{REPLIES}caller-{i + 1}"
            self.queues[name] = ReplyQueue(self, name, {}, None, None)

    # --- the process ------------------------------------------------------------------------------
    @property
    def up(self) -> bool:
        """Whether the server runs."""
        return self.process.alive

    def stop(self) -> None:
        """Kill the server; messages in queues are on disk."""
        self.process.crash()
        for connection in [*self.connections]:
            connection.cut(0.0, 0.0)

    def start(self) -> None:
        """Start the server again."""
        self.process.start()

    def connect(self, lost: Callable[[str], None]) -> Connection | None:
        """Return a connection, or None if the server is down."""
        if not self.up:
            return None
        connection = Connection(self, self._knobs.latency_s, lost, self.rng.random)
        self.connections.append(connection)
        return connection

    # --- messages ---------------------------------------------------------------------------------
    def publish(self, exchange: str, message: PublishedMessage) -> bool:
        """Route a message; return whether any queue accepted it. Raises `Refused`."""
        if exchange != DEFAULT and exchange not in self.exchanges:
            raise Refused(f"there is no exchange {exchange}")
        names = self.route(exchange, message.key)
        self.put(names, message)
        return bool(names)

    def received(
        self, exchange: str, key: str, header: bytes, body: bytes, direct: str
    ) -> PublishedMessage:
        """Return a message of a manager, with the number of its request; record one that it gives
        up."""
        message = super().received(exchange, key, header, body, direct)
        properties = message.properties
        message = replace(message, number=self.ledger.number_of(properties))
        if exchange == self.names.dead_letter_exchange:
            self.ledger.gave_up(message)
        return message

    def dead_letter(self, queue: SimQueue, entry: Entry, reason: str) -> None:
        """Publish a message to the dead letter exchange of its queue."""
        message = entry.message
        assert isinstance(message, PublishedMessage)
        headers = {FIRST_DEATH_REASON: reason, **message.headers}
        header = altered_properties(message.header, "", lambda name: name in headers, headers)
        dead = replace(message, expires_s=None, headers=headers, header=header)
        self.ledger.died(message, reason)
        exchange = str(queue.arguments.get("x-dead-letter-exchange", ""))
        if exchange not in self.exchanges or not self.publish(exchange, dead):
            text = f"dies ({reason}) in a queue that has no dead letter exchange"
            self.ledger.lost(queue.name, [message], text)

    # --- queues -----------------------------------------------------------------------------------
    def unbind(self, exchange: str, queue: str, key: str) -> None:
        """Remove a binding for a manager."""
        self.ledger.unbound(key)
        super().unbind(exchange, queue, key)

    def delete(self, name: str) -> StoredQueue:
        """Delete a queue and its messages."""
        key = self.names.key_of(name)
        if key is not None and name in self.exchanges.bound(self.names.requests_exchange, key):
            self.ledger.deleted_while_bound(key)
        queue = super().delete(name)
        self.ledger.lost(name, queue.messages, "is in a queue that is deleted")
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

    # --- the management API -----------------------------------------------------------------------
    def ask_api(self, path: str, tell: Callable[[ApiAnswer | None], None]) -> None:
        """Pass the answer to a GET to `tell`, as it was at a random instant between request and
        answer; None if the API fails."""
        delay_s = (self._knobs.api_s + self.api_slow_s) * (0.5 + self.rng.random())
        found: list[ApiAnswer | None] = []
        self.world.after(delay_s * self.rng.random(), lambda: found.append(self._answer(path)))
        self.world.after(delay_s, lambda: tell(found[0]))

    def _answer(self, path: str) -> ApiAnswer | None:
        if self.api_fails or not self.up:
            return None
        _, _, kind, _vhost, *names = map(unquote, path.split("/"))
        match kind, names:
            case "queues", []:
                return ApiAnswer(200, [_described(queue) for queue in self.queues.values()])
            case "queues", [name] if name in self.queues:
                return ApiAnswer(200, _described(self.queues[name]))
            case "exchanges", [name, "bindings", "source"] if name in self.exchanges:
                bound = self.exchanges.all_bound(name)
                content = [{"destination": each, "destination_type": "queue"} for each in bound]
                return ApiAnswer(200, content)
            case "exchanges", [name] if name in self.exchanges:
                return ApiAnswer(200, {})
        return ApiAnswer(404, {"reason": "Not Found"})


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

    def consume(self, queue: str, consumer: Consumer) -> None:
        """Add a consumer. Runs in the server. Raises `Refused`."""
        if queue not in self.rabbit.queues:
            raise Refused(f"there is no queue {queue}")
        found = self.rabbit.queues[queue]
        if self.is_open and found.consume(consumer):
            self._consumers.append((found, consumer))

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
        """Remove the consumers of the connection."""
        if self in self.rabbit.connections:
            self.rabbit.connections.remove(self)
        for queue, consumer in self._consumers:
            queue.remove_consumer(consumer)
        self._consumers.clear()


def message(
    key: str,
    headers: Mapping[str, Any],
    *,
    number: int = 0,
    reply_to: str = "",
    correlation_id: str = "",
    expires_s: float | None = None,
) -> PublishedMessage:
    """Return a persistent message; `number` is that of its request."""
    properties = Properties(
        correlation_id,
        reply_to,
        f"{number:032x}" if number else "",
        "" if expires_s is None else str(round(1000 * expires_s)),
        headers,
        persistent=True,
    )
    published = published_message("", key, encode_properties(properties, 0), b"", "")
    return replace(published, number=number)


def _described(queue: StoredQueue) -> dict[str, Any]:
    return {
        "name": queue.name,
        "type": queue.arguments.get("x-queue-type", "classic"),
        "arguments": queue.arguments,
        "messages": len(queue.messages),
        "messages_unacknowledged": queue.sampled(),
        "consumers": queue.active_consumers,
    }
