"""A manager: the real engine, and what its shell does with RabbitMQ and a driver."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from requite.chronicle import CALL_ID_SIZE
from requite.engine import Stopped, Wake, Warn
from requite.pool import effects as fx
from requite.pool import inputs
from requite.pool.engine import PoolEngine
from requite.protocols.amqp.wire import ATTEMPT, EVENT, FIRST_DEATH_REASON, STATUS
from requite.sim.pool.node import Node
from requite.sim.pool.rabbit import QueueNotFound, Refused
from requite.sim.rabbitmq.message import Entry, SimMessage
from requite.sim.rabbitmq.queue import Consumer

if TYPE_CHECKING:
    from requite.sim.pool.driver import SimDriver
    from requite.sim.pool.rabbit import Connection
    from requite.sim.pool.stage import PoolStage

_STAND_BY_S: Final = 0.5
_API_TIMEOUT_S: Final = 5.0
_HAND_OVER_S: Final = 4 * _STAND_BY_S
_REPORTS_MAX: Final = 50


class Manager(Node):
    """A manager. It is on standby until it gets the exclusive consumers of the pool's queues."""

    engine: PoolEngine

    def __init__(self, name: str, stage: PoolStage, driver: SimDriver) -> None:
        super().__init__(name, stage)
        self.is_leaving = False
        self.has_stopped = False
        self._driver = driver
        self._names = stage.parts.topology("core")
        self._effects: dict[type, Callable[[Any], None]] = {
            fx.ListQueues: self._list_queues,
            fx.DeclareQueue: self._declare,
            fx.BindQueue: self._bind,
            fx.UnbindQueue: self._unbind,
            fx.InspectQueue: self._inspect,
            fx.DeleteQueue: self._delete,
            fx.ListGroups: self._list_groups,
            fx.StartGroup: self._start_group,
            fx.StopGroup: self._stop_group,
            fx.Forward: self._forward,
            fx.Answer: self._answer,
            fx.Ack: self._ack,
            fx.StopConsuming: self._stop_consuming,
            fx.HandOver: self._await_handover,
            Stopped: self._stopped,
            Warn: lambda warn: stage.remark(self.name, f"warns: {warn.text}"),
        }

    # --- life -------------------------------------------------------------------------------------
    def begun(self) -> None:
        """Start with a new engine, on a clock with a random offset."""
        self._offset_s = self.rng.random() * 10_000
        self.is_leaving = self.has_stopped = False
        self._stopped_groups: set[str] = set()  # groups that it has stopped while draining
        self._armed = 0
        self._armed_at: float | None = None
        self.is_active = False
        self._consumers: dict[str, Consumer] = {}
        self._held: dict[Any, tuple[str, int, Entry]] = {}
        self.engine = PoolEngine(self.stage.knobs.config, self.now, self.stage.parts.engine)

    @property
    def now(self) -> float:
        """The time on this process's clock."""
        return self.stage.world.now + self._offset_s

    @property
    def is_leading(self) -> bool:
        """Whether it is the active manager, which decides which groups run."""
        return self.alive and self.is_active and not self.is_leaving

    def drain(self, *, stop_groups: bool) -> None:
        """Drain the manager."""
        if self.alive and not self.is_leaving:
            self.is_leaving = True
            self.act(self.feed, inputs.DrainPool(stop_groups, hand_over=True))

    def feed(self, event: Any) -> None:
        """Pass an input to the engine, and execute the effects."""
        for effect in self.engine.handle((event,), self.now):
            self._effects[type(effect)](effect)
        self._arm()

    def _arm(self) -> None:
        at = self.engine.deadline()
        if at == self._armed_at:
            return
        self._armed_at = at
        self._armed += 1
        if at is not None:
            # A timer may be a little late, never early.
            delay_s = max(0.0, at - self.now) + 1e-6
            self.later(delay_s, self._wake, self._armed)

    def _wake(self, armed: int) -> None:
        if armed == self._armed:
            self._armed_at = None
            self.feed(Wake())

    def _stopped(self, _: Stopped) -> None:
        self.has_stopped = True
        self.later(0.0, self.end, "leaves")

    # --- the connection ---------------------------------------------------------------------------
    def connected(self, connection: Connection) -> None:
        """Declare the pool's exchanges and queues, then try to become the active manager."""
        if not self.is_leaving:
            self.ask(lambda: self._declare_pool(connection), self._after_declare)

    def _declare_pool(self, connection: Connection) -> None:
        rabbit = self.stage.rabbit
        rabbit.declare_pool(
            self._names, lambda q: connection if self._names.is_exclusive(q) else None
        )

    def _after_declare(self, answer: Any) -> None:
        if isinstance(answer, Refused):
            self.later(_STAND_BY_S, self._try_again)
        else:
            self.ask(lambda: self._consume_alone(self.connections), self._become_active)

    def _try_again(self) -> None:
        if self.connection is not None and not self.is_active and not self.is_leaving:
            self.connected(self.connection)

    def _consume_alone(self, number: int) -> bool:
        """Consume exclusively from the dead letter queue and the orphan queue; runs in the
        server."""
        if number != self.connections:
            return False
        alone = self._names.dead_letter_queue, self._names.orphan_queue
        prefetch = self.stage.knobs.orphans
        return all(self._consume(name, prefetch) for name in alone)

    def _become_active(self, granted: Any) -> None:
        if self.is_active:
            return
        if granted is not True:
            self.later(_STAND_BY_S, self._try_again)
            return
        self.is_active = True
        self.stage.remark(self.name, "is the one that is_leading")
        self.feed(inputs.Connected())
        for tag, (_, _, entry) in [*self._held.items()]:
            self._hand_over(tag, entry)
        self.ask(lambda: self._consume(self._names.activity_queue, _REPORTS_MAX))

    def disconnected(self) -> None:
        """Tell the engine, if it was connected."""
        was_active, self.is_active = self.is_active, False
        self._consumers.clear()
        self._held.clear()
        if was_active:
            self.feed(inputs.Disconnected("the connection is broken"))

    def _consume(self, queue: str, prefetch: int) -> bool:
        connection, life = self.connection, self.life
        if connection is None:
            return False
        if queue in self._consumers:
            return True

        def deliver(number: int, entry: Entry) -> None:
            if life == self.life and connection is self.connection:
                self.act(self._delivered, queue, number, entry)

        consumer = Consumer(
            connection,
            prefetch,
            deliver,
            lambda: None,
            exclusive=queue != self._names.activity_queue,
        )
        if not connection.consume(queue, consumer):
            return False
        self._consumers[queue] = consumer
        return True

    # --- deliveries -------------------------------------------------------------------------------
    def _delivered(self, queue: str, number: int, entry: Entry) -> None:
        message = entry.message
        if queue == self._names.activity_queue:
            self._acknowledge(queue, number)
            event = message.headers.get(EVENT)
            self.feed(inputs.ActivityArrived(message.key, event if isinstance(event, str) else ""))
            return
        tag = (self.life, self.connections, queue, number)
        self._held[tag] = queue, number, entry
        if self.is_active:
            self._hand_over(tag, entry)

    def _hand_over(self, tag: Any, entry: Entry) -> None:
        message = entry.message
        call_id = message.number.to_bytes(CALL_ID_SIZE, "big")
        if tag[2] == self._names.orphan_queue:
            self.feed(inputs.OrphanArrived(tag, message.key, message.expires_s, call_id))
        else:
            published = inputs.DeadLetterArrived(
                tag, message.key, message.headers, message.reply_to, message.correlation_id, call_id
            )
            self.feed(published)

    def _ack(self, effect: fx.Ack) -> None:
        queue, number, _ = self._held.pop(effect.tag)
        self._acknowledge(queue, number)

    def _acknowledge(self, queue: str, number: int) -> None:
        consumer = self._consumers.get(queue)
        if consumer is not None:
            found = self.stage.rabbit.queues.get
            self.ask(lambda: _acknowledge_if_exists(found(queue), consumer, number))

    def _stop_consuming(self, _: fx.StopConsuming) -> None:
        for name, consumer in self._consumers.items():
            queue = self.stage.rabbit.queues.get(name)
            if queue is not None:
                self.ask(partial(queue.cancel_consumer, consumer))

    def _await_handover(self, _: fx.HandOver) -> None:
        """Wait until another manager consumes from the orphan queue, or a time limit."""
        self._await_successor(self.stage.world.now + _HAND_OVER_S)

    def _await_successor(self, until: float) -> None:
        def decide(taken: bool) -> None:
            if taken or self.stage.world.now >= until:
                self.feed(inputs.HandedOver(taken))
            else:
                self.later(_STAND_BY_S / 4, self._await_successor, until)

        def look() -> bool:
            queue = self.stage.rabbit.queues.get(self._names.orphan_queue)
            return queue is not None and queue.active_consumers > 0

        self.ask(look, decide)

    # --- publishing -------------------------------------------------------------------------------
    def _forward(self, effect: fx.Forward) -> None:
        message = self._held[effect.tag][2].message
        headers: Mapping[str, Any] = message.headers
        if effect.reason:
            headers = {**headers, FIRST_DEATH_REASON: effect.reason}
        exchange, key = self._destination(effect.to, message.key)
        self.stage.ledger.forwarded(effect.to, message, effect.reason)
        copy = replace(message, key=key, expires_s=effect.expires_s, headers=headers)
        self._publish(effect.ticket, exchange, copy)

    def _destination(self, to: fx.Destination, key: str) -> tuple[str, str]:
        names = self._names
        match to:
            case fx.Destination.REQUESTS:
                return names.requests_exchange, key
            case fx.Destination.ORPHANS:
                return names.orphan_exchange, key
            case fx.Destination.DEAD_LETTERS:
                return names.dead_letter_exchange, key
            case fx.Destination.POISON:
                return "", names.poison_queue

    def _answer(self, effect: fx.Answer) -> None:
        headers = {STATUS: effect.status, ATTEMPT: effect.attempt}
        reply = SimMessage(0, effect.reply_to, None, effect.correlation_id, None, headers)
        self._publish(effect.ticket, "", reply)

    def _publish(self, ticket: int, exchange: str, message: SimMessage) -> None:
        self.ask(
            lambda: self.stage.rabbit.publish(exchange, message),
            lambda routed: self.feed(_confirmed(ticket, routed)),
        )

    # --- request queues ---------------------------------------------------------------------------
    def _list_queues(self, effect: fx.ListQueues) -> None:
        life, ticket = self.life, effect.ticket
        is_over: list[bool] = []

        def tell(found: dict[str, bool] | None) -> None:
            if life != self.life or is_over:
                return
            is_over.append(True)
            if found is None:
                self.act(self.feed, inputs.QueueListFailed(ticket, "no answer"))
            else:
                self.act(self.feed, inputs.QueuesListed(ticket, found))

        self.stage.rabbit.list_queues(tell)
        self.later(_API_TIMEOUT_S, tell, None)

    def _step(self, key: str, act: Callable[[], Any]) -> None:
        def checked() -> Any:
            self.stage.rabbit.check_refused(key)
            return act()

        self.ask(checked, lambda answer: self.feed(_queue_result(key, answer)))

    def _declare(self, effect: fx.DeclareQueue) -> None:
        name = self._names.request_queue(effect.key)
        rabbit = self.stage.rabbit
        self._step(effect.key, lambda: rabbit.declare(name, effect.arguments))

    def _bind(self, effect: fx.BindQueue) -> None:
        binding = self._names.request_binding(effect.key)
        self._step(effect.key, lambda: self.stage.rabbit.bind(*binding))

    def _unbind(self, effect: fx.UnbindQueue) -> None:
        binding = self._names.request_binding(effect.key)

        def unbind() -> None:
            self.stage.rabbit.unbind(*binding)
            self.stage.ledger.unbound(effect.key)

        self._step(effect.key, unbind)

    def _inspect(self, effect: fx.InspectQueue) -> None:
        name = self._names.request_queue(effect.key)

        def look() -> inputs.QueueInspected:
            queue = self.stage.rabbit.find(name)
            counts = len(queue.ready), queue.sampled(), queue.active_consumers
            return inputs.QueueInspected(effect.key, *counts)

        self._step(effect.key, look)

    def _delete(self, effect: fx.DeleteQueue) -> None:
        exchange, name, key = self._names.request_binding(effect.key)
        rabbit = self.stage.rabbit

        def delete() -> None:
            self.stage.ledger.deleted(key, name in rabbit.exchanges.bound(exchange, key))
            rabbit.delete(name)

        self._step(effect.key, delete)

    # --- groups -----------------------------------------------------------------------------------
    def _list_groups(self, effect: fx.ListGroups) -> None:
        def tell(found: Mapping[str, inputs.RunningGroup] | None) -> None:
            if found is None:
                self.feed(inputs.GroupListFailed(effect.ticket, "the driver fails"))
            else:
                self.feed(inputs.GroupsListed(effect.ticket, found))

        self._driver.list(self._unless_restarted(tell))

    def _start_group(self, effect: fx.StartGroup) -> None:
        tell = self._unless_restarted(lambda done: self.feed(_group_result(effect.key, done)))
        self._driver.start(effect.key, effect.version, effect.workers or 1, tell)

    def _stop_group(self, effect: fx.StopGroup) -> None:
        def told(done: bool) -> None:
            if done and self.is_leaving:
                self._stopped_groups.add(effect.key)
            self.feed(_group_result(effect.key, done))

        if effect.key in self._stopped_groups:
            self.stage.ledger.stopped_twice(effect.key)
        self.stage.ledger.group_stopped(effect.key)
        self._driver.stop(effect.key, self._unless_restarted(told))

    def _unless_restarted(self, tell: Callable[[Any], None]) -> Callable[[Any], None]:
        life = self.life

        def told(answer: Any) -> None:
            if life == self.life:
                self.act(tell, answer)

        return told


def _acknowledge_if_exists(queue: Any, consumer: Consumer, number: int) -> None:
    if queue is not None:
        queue.acknowledge(consumer, number)


def _confirmed(ticket: int, routed: Any) -> Any:
    if isinstance(routed, Refused):
        return inputs.PublishFailed(ticket, str(routed))
    return inputs.Published(ticket, routed)


def _queue_result(key: str, answer: Any) -> Any:
    match answer:
        case QueueNotFound():
            return inputs.QueueAbsent(key)
        case Refused():
            return inputs.QueueFailed(key, str(answer))
        case inputs.QueueInspected():
            return answer
    return inputs.QueueDone(key)


def _group_result(key: str, done: bool) -> Any:
    return inputs.GroupDone(key) if done else inputs.GroupFailed(key, "the driver fails")
