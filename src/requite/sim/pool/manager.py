"""A manager: the real engine, and what its shell does with RabbitMQ and a driver."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from requite.chronicle import CALL_ID_SIZE
from requite.engine import Stopped, Wake, Warn
from requite.pool import effects as fx
from requite.pool import inputs as said
from requite.pool.engine import PoolEngine
from requite.protocols.amqp.wire import ATTEMPT, EVENT, FIRST_DEATH_REASON, STATUS
from requite.sim.pool.node import Node
from requite.sim.pool.rabbit import Absent, Refused
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
    """A manager. It stands by until nobody else consumes what it is to consume alone."""

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
            fx.HandOver: self._leave_to_another,
            Stopped: self._stopped,
            Warn: lambda warn: stage.remark(self.name, f"warns: {warn.text}"),
        }

    # --- life -------------------------------------------------------------------------------------
    def begun(self) -> None:
        """Begin with an engine that knows nothing. Its clock starts anywhere."""
        self._offset_s = self.rng.random() * 10_000
        self.is_leaving = self.has_stopped = False
        self._left: set[str] = set()  # groups that it has stopped since it was to leave
        self._armed = 0
        self._armed_at: float | None = None
        self.is_active = False
        self._consumers: dict[str, Consumer] = {}
        self._held: dict[Any, tuple[str, int, Entry]] = {}
        self.engine = PoolEngine(self.stage.knobs.config, self.now, self.stage.parts.engine)

    @property
    def now(self) -> float:
        """The time by this process's own clock."""
        return self.stage.world.now + self._offset_s

    @property
    def decides(self) -> bool:
        """Whether it is the one that says which groups there should be."""
        return self.alive and self.is_active and not self.is_leaving

    def drain(self, *, stop_groups: bool) -> None:
        """Be told to leave."""
        if self.alive and not self.is_leaving:
            self.is_leaving = True
            self.act(self.feed, said.DrainPool(stop_groups, hand_over=True))

    def feed(self, event: Any) -> None:
        """Let the engine know, and do what it says."""
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
            # A timer may be a little late, and never early.
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
        """Declare the pool, and try to be the one that consumes."""
        if not self.is_leaving:
            self.ask(lambda: self._declare_pool(connection), self._stand_by)

    def _declare_pool(self, connection: Connection) -> None:
        rabbit = self.stage.rabbit
        rabbit.declare_pool(
            self._names, lambda q: connection if self._names.is_exclusive(q) else None
        )

    def _stand_by(self, answer: Any) -> None:
        if isinstance(answer, Refused):
            self.later(_STAND_BY_S, self._try_again)
        else:
            self.ask(lambda: self._consume_alone(self.connections), self._take_up)

    def _try_again(self) -> None:
        if self.connection is not None and not self.is_active and not self.is_leaving:
            self.connected(self.connection)

    def _consume_alone(self, number: int) -> bool:
        """Consume from both queues on that connection (a server's act)."""
        if number != self.connections:
            return False
        alone = self._names.dead_letter_queue, self._names.orphan_queue
        prefetch = self.stage.knobs.orphans
        return all(self._consume(name, prefetch) for name in alone)

    def _take_up(self, granted: Any) -> None:
        if self.is_active:
            return
        if granted is not True:
            self.later(_STAND_BY_S, self._try_again)
            return
        self.is_active = True
        self.stage.remark(self.name, "is the one that decides")
        self.feed(said.Connected())
        for tag, (_, _, entry) in [*self._held.items()]:
            self._hand_over(tag, entry)
        self.ask(lambda: self._consume(self._names.activity_queue, _REPORTS_MAX))

    def disconnected(self) -> None:
        """Tell the engine, if it was connected as far as it knows."""
        was_active, self.is_active = self.is_active, False
        self._consumers.clear()
        self._held.clear()
        if was_active:
            self.feed(said.Disconnected("the connection is broken"))

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
            self.feed(said.ActivityArrived(message.key, event if isinstance(event, str) else ""))
            return
        tag = (self.life, self.connections, queue, number)
        self._held[tag] = queue, number, entry
        if self.is_active:
            self._hand_over(tag, entry)

    def _hand_over(self, tag: Any, entry: Entry) -> None:
        message = entry.message
        call_id = message.number.to_bytes(CALL_ID_SIZE, "big")
        if tag[2] == self._names.orphan_queue:
            self.feed(said.OrphanArrived(tag, message.key, message.expires_s, call_id))
        else:
            letter = said.DeadLetterArrived(
                tag, message.key, message.headers, message.reply_to, message.correlation_id, call_id
            )
            self.feed(letter)

    def _ack(self, effect: fx.Ack) -> None:
        queue, number, _ = self._held.pop(effect.tag)
        self._acknowledge(queue, number)

    def _acknowledge(self, queue: str, number: int) -> None:
        consumer = self._consumers.get(queue)
        if consumer is not None:
            found = self.stage.rabbit.queues.get
            self.ask(lambda: _if_there(found(queue), consumer, number))

    def _stop_consuming(self, _: fx.StopConsuming) -> None:
        for name, consumer in self._consumers.items():
            queue = self.stage.rabbit.queues.get(name)
            if queue is not None:
                self.ask(partial(queue.stop, consumer))

    def _leave_to_another(self, _: fx.HandOver) -> None:
        """See for a while whether somebody else consumes what this one did."""
        self._look_who_consumes(self.stage.world.now + _HAND_OVER_S)

    def _look_who_consumes(self, until: float) -> None:
        def judge(taken: bool) -> None:
            if taken or self.stage.world.now >= until:
                self.feed(said.HandedOver(taken))
            else:
                self.later(_STAND_BY_S / 4, self._look_who_consumes, until)

        def look() -> bool:
            queue = self.stage.rabbit.queues.get(self._names.orphan_queue)
            return queue is not None and queue.listening > 0

        self.ask(look, judge)

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
                self.act(self.feed, said.QueueListFailed(ticket, "no answer"))
            else:
                self.act(self.feed, said.QueuesListed(ticket, found))

        self.stage.rabbit.list_queues(tell)
        self.later(_API_TIMEOUT_S, tell, None)

    def _step(self, key: str, act: Callable[[], Any]) -> None:
        def cursed() -> Any:
            self.stage.rabbit.check_curse(key)
            return act()

        self.ask(cursed, lambda answer: self.feed(_became(key, answer)))

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

        def look() -> said.QueueInspected:
            queue = self.stage.rabbit.find(name)
            counts = len(queue.ready), queue.sampled(), queue.listening
            return said.QueueInspected(effect.key, *counts)

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
        def tell(found: Mapping[str, said.RunningGroup] | None) -> None:
            if found is None:
                self.feed(said.GroupListFailed(effect.ticket, "the driver fails"))
            else:
                self.feed(said.GroupsListed(effect.ticket, found))

        self._driver.list(self._in_this_life(tell))

    def _start_group(self, effect: fx.StartGroup) -> None:
        tell = self._in_this_life(lambda done: self.feed(_asked(effect.key, done)))
        self._driver.start(effect.key, effect.version, effect.workers or 1, tell)

    def _stop_group(self, effect: fx.StopGroup) -> None:
        def told(done: bool) -> None:
            if done and self.is_leaving:
                self._left.add(effect.key)
            self.feed(_asked(effect.key, done))

        if effect.key in self._left:
            self.stage.ledger.stopped_twice(effect.key)
        self.stage.ledger.group_stopped(effect.key)
        self._driver.stop(effect.key, self._in_this_life(told))

    def _in_this_life(self, tell: Callable[[Any], None]) -> Callable[[Any], None]:
        life = self.life

        def told(answer: Any) -> None:
            if life == self.life:
                self.act(tell, answer)

        return told


def _if_there(queue: Any, consumer: Consumer, number: int) -> None:
    if queue is not None:
        queue.acknowledge(consumer, number)


def _confirmed(ticket: int, routed: Any) -> Any:
    if isinstance(routed, Refused):
        return said.PublishFailed(ticket, str(routed))
    return said.Published(ticket, routed)


def _became(key: str, answer: Any) -> Any:
    match answer:
        case Absent():
            return said.QueueAbsent(key)
        case Refused():
            return said.QueueFailed(key, str(answer))
        case said.QueueInspected():
            return answer
    return said.QueueDone(key)


def _asked(key: str, done: bool) -> Any:
    return said.GroupDone(key) if done else said.GroupFailed(key, "the driver fails")
