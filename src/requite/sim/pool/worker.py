"""A worker of a pool: it serves the requests of its queue, following their instructions."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final

from requite.protocols.amqp.topology import Pool
from requite.protocols.amqp.wire import EVENT, STATUS, Event
from requite.sim.pool.knobs import Task
from requite.sim.pool.node import Node
from requite.sim.pool.rabbit import Refused, message
from requite.sim.rabbitmq.message import Entry, SimMessage
from requite.sim.rabbitmq.queue import Consumer

if TYPE_CHECKING:
    from requite.sim.pool.rabbit import Connection
    from requite.sim.pool.stage import PoolStage

_ASKS_AGAIN_S: Final = 0.5
_GRACE_S: Final = 2.0  # may be shorter than RabbitMQ's sampling interval


class Worker(Node):
    """A worker of the group of `key`; it is never restarted. If its queue does not exist, it
    reports itself and retries."""

    def __init__(
        self, name: str, stage: PoolStage, key: str, ended: Callable[[Worker], None]
    ) -> None:
        super().__init__(name, stage)
        self.key = key
        self.in_hand: dict[int, Entry] = {}
        self._names = Pool("core")
        self._ended = ended
        self._consumer: Consumer | None = None
        self._is_stopping = False
        self._is_over = False

    # --- life -------------------------------------------------------------------------------------
    def begin(self) -> None:
        """Start, unless the worker was stopped before."""
        if not self._is_over:
            self.start()

    def end(self, what: str, server_delay_s: float = 0.0) -> None:
        """Crash or exit; the driver may start another worker."""
        super().end(what, server_delay_s)
        if not self._is_over:
            self._is_over = True
            self._ended(self)

    def stop(self) -> None:
        """Finish the requests in hand, and exit."""
        if not self.alive:
            self.end("is not started any more")
        elif not self._is_stopping:
            self._is_stopping = True
            consumer = self._consumer
            queue = self.stage.rabbit.queues.get(self._queue)
            if consumer is not None and queue is not None:
                self.ask(lambda: queue.cancel_consumer(consumer))
            server_delay_s = self.rng.random() * self.stage.knobs.notice_s
            self.later(_GRACE_S, self.end, "is killed", server_delay_s)
            self.later(2 * self.stage.knobs.latency_s, self._maybe_leave)

    def _maybe_leave(self) -> None:
        if self._is_stopping and not self.in_hand:
            self._report(Event.STOPPING)
            self.later(self.stage.knobs.latency_s, self.end, "leaves")

    # --- the queue --------------------------------------------------------------------------------
    @property
    def _queue(self) -> str:
        return self._names.request_queue(self.key)

    def connected(self, connection: Connection) -> None:
        """Report the start, and consume."""
        self._report(Event.STARTED)
        self._consume()

    def disconnected(self) -> None:
        """Forget the requests in hand: RabbitMQ redelivers them."""
        self.in_hand.clear()
        self._consumer = None
        self._maybe_leave()

    def _report(self, event: Event) -> None:
        report = message(self.key, {EVENT: str(event)})
        self.ask(lambda: self.stage.rabbit.publish(self._names.activity_exchange, report))

    def _consume(self) -> None:
        if not self._is_stopping and self.connection is not None:
            connection, count = self.connection, self.connections

            def deliver(tag: int, entry: Entry) -> None:
                if self.alive and count == self.connections:
                    self.act(self._take, consumer, tag, entry)

            consumer = Consumer(
                connection, self.stage.knobs.prefetch, deliver, lambda: self._cancelled(count)
            )
            self._consumer = consumer
            self.ask(lambda: connection.consume(self._queue, consumer), self._consuming)

    def _consuming(self, granted: Any) -> None:
        if isinstance(granted, Refused):
            self.later(_ASKS_AGAIN_S, self._ask_again, self.connections)
        else:
            self._report(Event.READY)

    def _cancelled(self, count: int) -> None:
        """Report and consume again: the queue was deleted."""
        if self.alive:
            self._ask_again(count)

    def _ask_again(self, count: int) -> None:
        if count == self.connections and self.connection is not None and not self._is_stopping:
            self._report(Event.STARTED)
            self._consume()

    # --- requests ---------------------------------------------------------------------------------
    def _take(self, consumer: Consumer, tag: int, entry: Entry) -> None:
        self._report(Event.REQUEST_RECEIVED)
        request = self.stage.ledger.requests.get(entry.message.number)
        if request is None:  # garbage, which cannot be answered
            self._settle(consumer, lambda queue: queue.acknowledge(consumer, tag))
            return
        self.stage.ledger.runs(request.number)
        self.in_hand[tag] = entry
        knobs = self.stage.knobs
        match request.task:
            case Task.POISON:
                self.later(knobs.service_s, self.end, f"dies of {request}", knobs.notice_s)
            case Task.STALL:
                self.later(knobs.ack_timeout_s, self.end, f"stalls with {request}")
            case Task.REJECT:
                self._reject(consumer, tag, requeue=False)
            case Task.REQUEUE if not entry.delivery_count:
                self._reject(consumer, tag, requeue=True)
            case _:
                count = self.connections
                self.later(knobs.service_s, self._serve, count, consumer, tag, entry.message)

    def _reject(self, consumer: Consumer, tag: int, *, requeue: bool) -> None:
        self._settle(consumer, lambda queue: queue.reject(consumer, tag, requeue=requeue))
        self._done(tag)

    def _serve(self, count: int, consumer: Consumer, tag: int, request: SimMessage) -> None:
        """Publish the reply; acknowledge the request once the reply is confirmed."""
        if count != self.connections or self.connection is None:
            return
        if not request.reply_to:
            self._served(consumer, tag, True)
            return
        correlation_id = request.correlation_id or ""
        reply = message(request.reply_to, {STATUS: "ok"}, correlation_id=correlation_id)
        self.ask(
            lambda: self.stage.rabbit.publish("", reply),
            lambda routed: self._served(consumer, tag, routed),
        )

    def _served(self, consumer: Consumer, tag: int, _routed: Any) -> None:
        self._settle(consumer, lambda queue: queue.acknowledge(consumer, tag))
        self._done(tag)

    def _settle(self, consumer: Consumer, act: Callable[[Any], None]) -> None:
        def settle() -> None:
            queue = self.stage.rabbit.queues.get(self._queue)
            if queue is not None:
                act(queue)

        self.ask(settle)

    def _done(self, tag: int) -> None:
        self.in_hand.pop(tag, None)
        self._maybe_leave()
