"""Broken parts of a pool manager: each breaks one rule.

D1 to D13 reproduce the defects of another implementation that `docs/protocols/pools.md` lists.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from requite.pool.activity import ActivityFilter
from requite.pool.deadletters import DeadLetters
from requite.pool.effects import Ack, Answer
from requite.pool.engine import PoolParts
from requite.pool.groups import GroupLoop
from requite.pool.inputs import DeadLetterArrived, OrphanArrived, QueueInspected
from requite.pool.manager.rabbit import Rabbit
from requite.pool.orphans import Orphans
from requite.pool.queues import Actual, QueueLoop, Step
from requite.pool.tracker import GroupStatus, Tracker
from requite.protocols.amqp import methods
from requite.protocols.amqp.wire import Event
from requite.sim.pool.stage import PoolSimParts


# --- defects of the other implementation ----------------------------------------------------------
class D1WaitsTheWrongWayRound(Orphans):
    """Hands an orphan over before its queue exists."""

    def _is_ready(self, name: str, generation: int | None) -> bool:
        return not super()._is_ready(name, generation)


class D2PassesOnTheSecondReport(ActivityFilter):
    """Forwards a report only if another one arrived less than a window before it."""

    def reported(self, key: str, event: str, now: float, *, expected: bool, stopping: bool) -> bool:
        if event != Event.REQUEST_RECEIVED:
            return super().reported(key, event, now, expected=expected, stopping=stopping)
        is_second = self._until.get(key, 0.0) > now
        self._until[key] = now + self.window_s
        return is_second


class D3HasNoDeadLetterExchange(QueueLoop):
    """Declares request queues without a dead-letter exchange."""

    def _arguments(self, key: str) -> Any:
        return {k: v for k, v in super()._arguments(key).items() if "dead-letter" not in k}


class D4ReadsAnotherHeader(DeadLetters):
    """Reads the reason from a header that RabbitMQ does not set."""

    def _arrived(self, event: DeadLetterArrived) -> None:
        headers = {"x-first-death-reason": event.headers.get("x-death-reason", "expired")}
        super()._arrived(event._replace(headers=headers))


class D4NeverAcknowledges(DeadLetters):
    """Answers a dead letter without acknowledging it."""

    def _taken(self) -> Any:
        return [effect for effect in super()._taken() if not isinstance(effect, Ack)]


class D4ForgetsTheCorrelationId(DeadLetters):
    """Answers without a correlation id, so no caller can match the reply."""

    def _taken(self) -> Any:
        return [
            effect._replace(correlation_id=None) if isinstance(effect, Answer) else effect
            for effect in super()._taken()
        ]


class D5OwnsTheOrphans(Rabbit):
    """Declares the orphan queue exclusive, so that it is deleted with its manager."""

    async def _declare_all(self) -> None:
        name = self._pool.orphan_queue
        arguments = next(queue.arguments for queue in self._pool.queues() if queue.name == name)
        async with self._connection.temporary_channel() as channel:
            await channel.ask(methods.queue_declare(name, arguments, exclusive=True))
        await super()._declare_all()


class D6EndsWhenRefused(QueueLoop):
    """Stops the loop at the first failed step."""

    def _failed(self, key: str, reason: str, now: float) -> None:
        self._connected = False


class D7WaitsInLine(Orphans):
    """Hands orphans over strictly in their order of arrival."""

    def _release(self, name: str, now: float) -> None:
        if next(iter(self._keys), name) == name:
            super()._release(name, now)
            for other in [*self._keys][:1]:
                super()._release(other, now)

    def _turn_at(self) -> None:
        return None


class D8CountsNoDeliveries(QueueLoop):
    """Declares request queues without a delivery limit."""

    def _arguments(self, key: str) -> Any:
        return {k: v for k, v in super()._arguments(key).items() if k != "x-delivery-limit"}


class D13LeavesWorkersBehind(GroupLoop):
    """Ends without stopping its groups."""

    @property
    def is_idle(self) -> bool:
        return True

    def _stop(self, key: str, now: float) -> None:
        if self._expected:
            super()._stop(key, now)


# --- other bugs -----------------------------------------------------------------------------------
class AcknowledgesAtOnce(Orphans):
    """Acknowledges an orphan before its copy is confirmed."""

    def _arrived(self, event: OrphanArrived, now: float) -> None:
        self._out.append(Ack(event.tag))
        super()._arrived(event, now)

    def _published(self, ticket: int) -> None:
        self._publishing.pop(ticket)


class NeverPutsBack(Orphans):
    """Never puts waiting orphans back, so the orphans of one key can use up the prefetch."""

    def _turn_at(self) -> None:
        return None


class ForgetsExpirations(Orphans):
    """Ignores the expiration of orphans."""

    def _arrived(self, event: OrphanArrived, now: float) -> None:
        super()._arrived(event._replace(expires_s=None), now)


class HastyWithExpirations(Orphans):
    """Expires orphans after a quarter of their time."""

    def _arrived(self, event: OrphanArrived, now: float) -> None:
        early = None if event.expires_s is None else event.expires_s / 4
        super()._arrived(event._replace(expires_s=early), now)

    def _is_ready(self, name: str, generation: int | None) -> bool:
        waiting = self._keys[name].waiting
        return super()._is_ready(name, generation) and all(o.expires_at > 1e9 for o in waiting)


class DeletesWhatIsNotEmpty(QueueLoop):
    """Deletes a queue that is not empty."""

    def _inspected(self, event: QueueInspected, now: float) -> None:
        super()._inspected(event._replace(ready=0, unacknowledged=0), now)


class DeletesUnderItsWorkers(QueueLoop):
    """Deletes a queue while workers that hold requests still run."""

    def _may_inspect(self, queue: Any, now: float) -> bool:
        return True

    def _inspected(self, event: QueueInspected, now: float) -> None:
        queue = self._queues.get(event.key)
        if queue is not None and queue.expected is None and queue.step is Step.INSPECT:
            self._begin(queue, Step.DELETE)
        else:
            super()._inspected(event, now)


class DeletesAfterOneLook(QueueLoop):
    """Trusts the first empty count, although RabbitMQ's statistics lag."""

    def _seen_empty(self, queue: Any, now: float) -> None:
        self._begin(queue, Step.DELETE)


class NeverUnbinds(QueueLoop):
    """Treats a queue as unbound without unbinding it."""

    def _begin(self, queue: Any, step: Step) -> None:
        if step is Step.UNBIND:
            queue.actual = Actual.UNBOUND
            self._step(queue, queue.seen_at)
        else:
            super()._begin(queue, step)


class NeverDeletes(QueueLoop):
    """Never deletes a queue."""

    def _begin(self, queue: Any, step: Step) -> None:
        if step is not Step.DELETE:
            super()._begin(queue, step)


class TrustsWhatItRemembers(QueueLoop):
    """Never corrects or re-checks a known state."""

    def doubt(self, key: str, now: float) -> None:
        """Ignore the doubt."""

    def _correct(self, queue: Any, bound: bool | None, now: float) -> None:
        if queue.actual is Actual.UNKNOWN:
            super()._correct(queue, bound, now)


class StopsBeforeItKnows(GroupLoop):
    """Stops unexpected groups right after its start, before it knows the target set."""

    def activate(self, now: float) -> Any:
        self._may_stop = True
        return super().activate(now)


class StopsAgainAndAgain(GroupLoop):
    """Stops groups that another manager starts while this one leaves."""

    def _done(self, key: str) -> None:
        return None


class StopsTheUnbound(GroupLoop):
    """Stops a group as soon as it is unbound, with requests still in its queue."""

    def expect(self, state: Any, now: float) -> Any:
        active = {k: e for k, e in state.groups.items() if e.status is GroupStatus.ACTIVE}
        return super().expect(state._replace(groups=active), now)


class GivesUpOnGroups(GroupLoop):
    """Never retries a group that failed to start or died."""

    def advance(self, now: float) -> Any:
        self._pauses.due(now)
        for key in self._groups:
            if key in self._pauses._failures:
                self._pauses.wait(key, 1e9, now)
        return super().advance(now)


class ReplacesAllAtOnce(GroupLoop):
    """Stops all groups of the old version at once."""

    def __init__(self, config: Any) -> None:
        super().__init__(replace(config, loops=replace(config.loops, replace_max=1000)))


class NeverReplaces(GroupLoop):
    """Never replaces groups of the old version."""

    def set_version(self, version: str, now: float) -> Any:
        return []


class RemovesWithoutLooking(Tracker):
    """Removes a group when its lifetime ends, even if requests are queued."""

    def advance(self, now: float) -> list[str]:
        for key in super().advance(now):
            self.remove(key)
        return []


class ShortensLives(Tracker):
    """Lets a new report shorten the lifetime of a group."""

    def require(self, key: str, extra_lifetime_s: float, now: float) -> int:
        generation = super().require(key, extra_lifetime_s, now)
        self._timers.set(key, now + 0.3 * self._policy.unbind_delay_s)
        return generation


class KeepsNoPoison(DeadLetters):
    """Answers a poison request without keeping a copy."""

    def _arrived(self, event: DeadLetterArrived) -> None:
        super()._arrived(event)
        for letter in self._publishing.values():
            letter.remaining[:-1] = []

    def _continue(self, letter: Any) -> None:
        letter.remaining[:-1] = []
        super()._continue(letter)


class DiesOfHeaders(DeadLetters):
    """Assumes that headers have the expected types."""

    def _arrived(self, event: DeadLetterArrived) -> None:
        int(event.headers.get("x-delivery-count", 0))
        super()._arrived(event)


class RemembersTickets(Orphans):
    """Never forgets confirmed orphans."""

    def _published(self, ticket: int) -> None:
        orphan = self._publishing[ticket]
        super()._published(ticket)
        self._publishing[-ticket] = orphan


class KeepsWhatItStops(ActivityFilter):
    """Requires a group again when a worker starts that is already being stopped."""

    def reported(self, key: str, event: str, now: float, *, expected: bool, stopping: bool) -> bool:
        return super().reported(key, event, now, expected=expected, stopping=False)


class RemembersReports(ActivityFilter):
    """Never forgets a window, so its table grows."""

    def _forget(self, now: float) -> None:
        self._until.update({f"{key}'": now for key in [*self._until] if "'" not in key})


def engine(**parts: Any) -> PoolSimParts:
    """Return the parts of a run with some parts of the engine replaced."""
    return PoolSimParts(engine=PoolParts(**parts))
