"""Control loop of request queues: makes a pool's queues match the tracker's target state.

    expected    actual           next step
    ACTIVE      nothing          declare, then bind
    ACTIVE      unbound queue    bind
    UNBOUND     bound queue      unbind
    UNBOUND     nothing          declare: its workers want to consume from it
    UNBOUND     unbound queue    inspect it, before its group is removed
    gone        bound queue      unbind
    gone        unbound queue    inspect it twice; delete it if it is empty and unused

A declaration of a queue whose state is unknown does not tell whether it is bound, so such a queue
is unbound before it is inspected.

A queue that holds requests is never deleted, and its group not stopped: the group is required
again. RabbitMQ deletes quorum queues only unconditionally, so the loop inspects the queue first,
and only when no request can enter it: it has been unbound for `stop_delay`, and no worker runs that
could requeue one. It inspects the queue again after `settle`: RabbitMQ reports unacknowledged
messages with that delay, and a dead worker may have left one on its connection.

A deleted queue is not declared again at once. RabbitMQ 3.10 deletes a quorum queue in steps; a
queue declared under the same name within milliseconds may never deliver a request.

Keys are independent, each with its own back-off. So the loop has reached a generation per key, not
one for all.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, ClassVar, Final

from requite.core.timers import Timers
from requite.engine import Warn
from requite.errors import LocalViolation
from requite.pool.backoff import Pauses
from requite.pool.config import PoolConfig
from requite.pool.effects import (
    BindQueue,
    DeclareQueue,
    DeleteQueue,
    InspectQueue,
    ListQueues,
    PoolEffect,
    UnbindQueue,
)
from requite.pool.inputs import (
    QueueAbsent,
    QueueDone,
    QueueFailed,
    QueueInspected,
    QueueListFailed,
    QueuesListed,
)
from requite.pool.tracker import GroupStatus, PoolState
from requite.protocols.amqp.topology import Pool, RequestQueueLimits

_REST_S: Final = 1.0
"""Pause before a deleted queue is declared again. Measured with RabbitMQ 3.10 on one machine: after
10 ms at least a third of the new queues hung, after a second none did."""


class Actual(StrEnum):
    """The last known state of a queue."""

    UNKNOWN = "unknown"
    NOTHING = "nothing"
    UNBOUND = "unbound"
    BOUND = "bound"


class Step(StrEnum):
    """An operation on a queue."""

    DECLARE = "declare"
    BIND = "bind"
    UNBIND = "unbind"
    INSPECT = "inspect"
    DELETE = "delete"


_AFTER: Final = {
    Step.DECLARE: Actual.UNBOUND,
    Step.BIND: Actual.BOUND,
    Step.UNBIND: Actual.UNBOUND,
    Step.DELETE: Actual.NOTHING,
}

# The next step, by target and actual state. INSPECT may lead to DELETE.
_NEXT: Final[dict[tuple[GroupStatus | None, Actual], Step]] = {
    (GroupStatus.ACTIVE, Actual.UNKNOWN): Step.DECLARE,
    (GroupStatus.ACTIVE, Actual.NOTHING): Step.DECLARE,
    (GroupStatus.ACTIVE, Actual.UNBOUND): Step.BIND,
    (GroupStatus.UNBOUND, Actual.UNKNOWN): Step.UNBIND,
    (GroupStatus.UNBOUND, Actual.NOTHING): Step.DECLARE,
    (GroupStatus.UNBOUND, Actual.BOUND): Step.UNBIND,
    (None, Actual.UNKNOWN): Step.UNBIND,
    (None, Actual.BOUND): Step.UNBIND,
    (None, Actual.UNBOUND): Step.INSPECT,
}


@dataclass(slots=True)
class _Queue:
    """One key's queue.

    - `unbound_at`: when it was unbound; `seen_at`: when its state was last confirmed.
    - `is_probed`: the tracker waits to learn whether it is empty.
    - `settled_at`: when it may be deleted, if it stays empty and unused.
    - `touched`: the number of the last listing before its last step ended.
    """

    key: str
    expected: GroupStatus | None = None
    generation: int = 0
    actual: Actual = Actual.UNKNOWN
    step: Step | None = None
    unbound_at: float = 0.0
    seen_at: float = 0.0
    is_probed: bool = False
    settled_at: float | None = None
    touched: int = 0


@dataclass(frozen=True, slots=True)
class QueueStatus:
    """Target state, actual state and current step of a queue."""

    expected: GroupStatus | None
    actual: Actual
    step: Step | None


def limits_of(config: PoolConfig) -> RequestQueueLimits:
    """Return the limits of request queues in the settings."""
    limits = config.limits
    return RequestQueueLimits(
        limits.delivery_limit, limits.message_ttl_s, limits.queue_length or None
    )


class QueueLoop:
    """The request queues control loop.

    `may_run(key)` returns whether workers of the key may be running; `require(key, now)` requires
    its group again; `remove(key)` reports that no request waits for the group. Feed it the inputs
    of `requite.pool.inputs` about queues, and call `expect` whenever the tracker's state changes.
    """

    finds_requests: ClassVar = False
    """Whether the loop requires groups for new requests. This one only does for queues that exist,
    so that no request in them is left without workers: `limits.groups` does not apply."""

    def __init__(
        self,
        config: PoolConfig,
        may_run: Callable[[str], bool],
        require: Callable[[str, float], object],
        remove: Callable[[str], object],
    ) -> None:
        self._config = config
        self._pool = Pool(config.pool.name)
        self._may_run = may_run
        self._require = require
        self._remove = remove
        self._queues: dict[str, _Queue] = {}
        self._pauses: Pauses[str] = Pauses(config.loops.backoff_s, config.loops.backoff_max_s)
        self._waits: Pauses[str] = Pauses(config.loops.interval_s, config.loops.interval_s)
        self._rests: Timers[str] = Timers()  # names of deleted queues, not to be declared yet
        self._listing = 0  # the ticket of the last listing
        self._is_listing = False
        self._gone: set[str] = set()  # keys of queues forgotten since the last listing began
        self._list_pauses: Pauses[str] = Pauses(config.loops.backoff_s, config.loops.backoff_max_s)
        self._connected = False
        self._bound: list[str] = []
        self._out: list[PoolEffect] = []
        self.is_listed = False  # whether all queues have been listed on this connection

    # --- what is known ----------------------------------------------------------------------------
    def bound_since(self, key: str) -> int | None:
        """Return the generation of the expected state for which the key's queue is bound."""
        queue = self._queues.get(key)
        if queue is None or queue.actual is not Actual.BOUND or queue.step is not None:
            return None
        return queue.generation if queue.expected is GroupStatus.ACTIVE else None

    def take_bound(self) -> list[str]:
        """Return the keys whose queues were bound, or found bound, since the last call."""
        taken, self._bound = self._bound, []
        return taken

    def take_ended(self) -> bool:
        """Return False: RabbitMQ does not report workers that have exited."""
        return False

    def snapshot(self) -> Mapping[str, QueueStatus]:
        """Return all queues, by key."""
        queues = self._queues.values()
        return {q.key: QueueStatus(q.expected, q.actual, q.step) for q in queues}

    def deadline(self) -> float | None:
        """Return when the next step or listing is due, or None."""
        if not self._connected:
            return None
        ends = (
            self._pauses.deadline(),
            self._waits.deadline(),
            self._list_pauses.deadline(),
            self._rests.next(),
        )
        return min((end for end in ends if end is not None), default=None)

    # --- inputs -----------------------------------------------------------------------------------
    def expect(self, state: PoolState, now: float) -> list[PoolEffect]:
        """Take the tracker's target state."""
        for key, (status, generation) in state.groups.items():
            queue = self._queues.get(key) or self._add(key)
            if queue.generation != generation:
                queue.expected, queue.generation, queue.is_probed = status, generation, False
                queue.settled_at = None
                self._waits.succeeded(key)
                self._step(queue, now)
                self._note_bound(queue)
        for key in [*self._queues.keys() - state.groups.keys()]:
            self._queues[key].expected = None
            self._step(self._queues[key], now)
        return self._taken()

    def probe(self, key: str, now: float) -> list[PoolEffect]:
        """Inspect an unbound queue: require its group again if requests wait, else remove it."""
        queue = self._queues.get(key)
        if queue is not None and queue.expected is GroupStatus.UNBOUND:
            queue.is_probed = True
            self._step(queue, now)
        return self._taken()

    def doubt(self, key: str, now: float) -> None:
        """Check a queue that should be bound, since a request for its key was unroutable.

        Requests published shortly before the queue was bound prove nothing.
        """
        queue = self._queues.get(key)
        if queue is None or queue.step is not None or queue.actual is not Actual.BOUND:
            return
        if now - queue.seen_at > self._config.loops.backoff_s:
            queue.actual = Actual.UNKNOWN
            self._rest(key, now)

    def connected(self, now: float) -> list[PoolEffect]:
        """Start on a new connection, with no known queues."""
        self._connected = True
        self._list()
        for queue in [*self._queues.values()]:
            self._step(queue, now)
        return self._taken()

    def disconnected(self) -> None:
        """Forget pending steps, and the state of all queues."""
        self._connected = self._is_listing = self.is_listed = False
        self._bound.clear()
        for queue in self._queues.values():
            queue.step = None
            queue.actual = Actual.UNKNOWN
            queue.settled_at = None

    def handle(self, event: Any, now: float) -> list[PoolEffect]:
        """Handle the result of an operation. Raises `LocalViolation` for other inputs."""
        match event:
            case QueuesListed() | QueueListFailed():
                self._listed(event, now)
            case QueueDone(key):
                self._ended(key, now)
            case QueueAbsent(key):
                self._absent(key, now)
            case QueueFailed(key, reason):
                self._failed(key, reason, now)
            case QueueInspected():
                self._inspected(event, now)
            case _:
                raise LocalViolation(f"{event!r} is not an event about queues")
        return self._taken()

    def advance(self, now: float) -> list[PoolEffect]:
        """Start the steps and listings that are due."""
        if self._connected:
            if self._list_pauses.due(now):
                self._list()
            rested = list(self._rests.due(now))
            for key in [*self._pauses.due(now), *self._waits.due(now), *rested]:
                if key in self._queues:
                    self._step(self._queues[key], now)
        return self._taken()

    # --- listings ---------------------------------------------------------------------------------
    def _list(self) -> None:
        if not self._is_listing:
            self._is_listing = True
            self._listing += 1
            self._gone.clear()
            self._out.append(ListQueues(self._listing))

    def _listed(self, event: QueuesListed | QueueListFailed, now: float) -> None:
        if event.ticket != self._listing or not self._is_listing:
            return
        self._is_listing = False
        if isinstance(event, QueueListFailed):
            self._list_pauses.failed("", now)
            text = f"the request queues cannot be listed (rabbitmq.management_url): {event.reason}"
            self._out.append(Warn("queue-list", text))
            return
        self._list_pauses.succeeded("")
        self._list_pauses.wait("", self._config.loops.interval_s, now)
        self._compare(event.queues, now)

    def _compare(self, found: Mapping[str, bool], now: float) -> None:
        """Update the known queues; for queues touched since, the listing is too old."""
        for key in found:
            if key not in self._queues and key not in self._gone:
                self._add(key)
                self._require(key, now)  # found at start, or declared by another program
        self.is_listed = True
        for queue in [*self._queues.values()]:
            if queue.step is None and queue.touched < self._listing:
                bound = found.get(queue.key)
                self._correct(queue, bound, now)
                self._step(queue, now)
                self._note_bound(queue)

    def _correct(self, queue: _Queue, bound: bool | None, now: float) -> None:
        was, queue.seen_at = queue.actual, now
        queue.actual = (
            Actual.NOTHING if bound is None else Actual.BOUND if bound else Actual.UNBOUND
        )
        if queue.actual is Actual.UNBOUND and was is not Actual.UNBOUND:
            queue.unbound_at = now
        if queue.actual is Actual.NOTHING and was in (Actual.UNBOUND, Actual.BOUND):
            self._rest(queue.key, now)

    def _rest(self, key: str, now: float) -> None:
        """Delay the next declaration of this queue: it may just have been deleted."""
        self._rests.set(key, now + _REST_S)

    def _note_bound(self, queue: _Queue) -> None:
        if self.bound_since(queue.key) is not None:
            self._bound.append(queue.key)

    # --- steps ------------------------------------------------------------------------------------
    def _add(self, key: str) -> _Queue:
        queue = self._queues[key] = _Queue(key)
        return queue

    def _step(self, queue: _Queue, now: float) -> None:
        """Start the next step of a queue, unless it is busy or paused."""
        if not self._connected or queue.step is not None:
            return
        if queue.key in self._pauses or queue.key in self._waits:
            return
        if queue.expected is None and queue.actual is Actual.NOTHING:
            self._forget(queue)
            return
        step = _NEXT.get((queue.expected, queue.actual))
        if queue.is_probed and queue.actual is Actual.UNBOUND:
            step = Step.INSPECT
        elif step is Step.INSPECT and not self._may_inspect(queue, now):
            return
        if step is not None and not (step is Step.DECLARE and queue.key in self._rests):
            self._begin(queue, step)

    def _may_inspect(self, queue: _Queue, now: float) -> bool:
        """Whether no request can enter the queue any more; if not, check again later."""
        rest_s = queue.unbound_at + self._config.lifetime.stop_delay_s - now
        if rest_s <= 0 and not self._may_run(queue.key):
            return True
        interval_s = self._config.loops.interval_s
        self._waits.wait(queue.key, rest_s if rest_s > 0 else interval_s, now)
        return False

    def _begin(self, queue: _Queue, step: Step) -> None:
        queue.step = step
        if step is not Step.INSPECT:
            queue.settled_at = None
        self._out.append(self._effect(step, queue.key))

    def _effect(self, step: Step, key: str) -> PoolEffect:
        match step:
            case Step.DECLARE:
                return DeclareQueue(key, self._arguments(key))
            case Step.BIND:
                return BindQueue(key)
            case Step.UNBIND:
                return UnbindQueue(key)
            case Step.INSPECT:
                return InspectQueue(key)
            case Step.DELETE:
                return DeleteQueue(key)

    def _arguments(self, key: str) -> Mapping[str, Any]:
        """Return the arguments of a queue. RabbitMQ compares them with those of an existing queue
        (406, PRECONDITION_FAILED)."""
        return self._pool.request_queue_to_declare(key, limits_of(self._config)).arguments

    def _forget(self, queue: _Queue) -> None:
        self._pauses.succeeded(queue.key)
        self._waits.succeeded(queue.key)
        self._gone.add(queue.key)
        del self._queues[queue.key]

    # --- ends of steps ----------------------------------------------------------------------------
    def _end(self, key: str) -> tuple[_Queue | None, Step | None]:
        """End a queue's step; return both, or None twice if no step was in progress."""
        queue = self._queues.get(key)
        if queue is None or queue.step is None:
            return None, None
        step, queue.step, queue.touched = queue.step, None, self._listing
        return queue, step

    def _ended(self, key: str, now: float) -> None:
        queue, step = self._end(key)
        if queue is None or step is None or step is Step.INSPECT:
            return
        self._pauses.succeeded(key)
        was_unknown = step is Step.DECLARE and queue.actual is Actual.UNKNOWN
        if was_unknown and queue.expected is not GroupStatus.ACTIVE:
            self._step(queue, now)  # unbind it: it may have existed, bound
            return
        queue.actual, queue.seen_at = _AFTER[step], now
        self._note_bound(queue)
        if step in (Step.UNBIND, Step.DECLARE):
            queue.unbound_at = now
        elif step is Step.DELETE:
            self._rest(key, now)
        self._step(queue, now)

    def _absent(self, key: str, now: float) -> None:
        queue, _ = self._end(key)
        if queue is not None:
            queue.actual = Actual.NOTHING
            self._rest(key, now)
            self._step(queue, now)

    def _failed(self, key: str, reason: str, now: float) -> None:
        """Back off; the failed step may have succeeded."""
        queue, step = self._end(key)
        if queue is None:
            return
        if step in (Step.BIND, Step.UNBIND, Step.DELETE):
            queue.actual = Actual.UNKNOWN
        self._pauses.failed(key, now)
        self._out.append(Warn("queue-step", f"could not {step} the queue of {key!r}: {reason}"))

    def _inspected(self, event: QueueInspected, now: float) -> None:
        queue, step = self._end(event.key)
        if queue is None or step is not Step.INSPECT or queue.expected is GroupStatus.ACTIVE:
            if queue is not None:
                self._step(queue, now)
            return
        probed, queue.is_probed = queue.is_probed, False
        if event.ready or event.unacknowledged:
            self._require(event.key, now)  # workers must serve them
        elif queue.expected is GroupStatus.UNBOUND:
            if probed:
                self._remove(event.key)
        elif event.consumers or self._may_run(event.key):
            queue.settled_at = None
            self._waits.wait(event.key, self._config.loops.interval_s, now)
        else:
            self._seen_empty(queue, now)

    def _seen_empty(self, queue: _Queue, now: float) -> None:
        """Delete a queue that was empty and unused `settle` ago as well; else wait."""
        if queue.settled_at is None:
            queue.settled_at = now + self._config.loops.settle_s
        if now < queue.settled_at:
            self._waits.wait(queue.key, queue.settled_at - now, now)
        else:
            self._begin(queue, Step.DELETE)

    def _taken(self) -> list[PoolEffect]:
        taken, self._out = self._out, []
        return taken
