"""The engine of a pool's manager with virtual time; the test plays RabbitMQ and the driver."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, TypeVar

from requite.engine import Wake
from requite.pool.config import Lifetime, Limits, Loops, PoolConfig, PoolSection
from requite.pool.effects import (
    DeclareQueue,
    DeleteQueue,
    Forward,
    InspectQueue,
    ListGroups,
    ListQueues,
)
from requite.pool.engine import PoolEngine
from requite.pool.inputs import (
    ActivityArrived,
    Connected,
    DeadLetterArrived,
    GroupsListed,
    OrphanArrived,
    Published,
    QueueDone,
    QueueInspected,
    QueuesListed,
    RunningGroup,
)

CONFIG = PoolConfig(
    PoolSection("core", version="1"),
    lifetime=Lifetime(unbind_delay_s=10.0, stop_delay_s=4.0, extra_lifetime_s=2.0),
    loops=Loops(interval_s=5.0, backoff_s=0.5, backoff_max_s=8.0),
    limits=Limits(message_ttl_s=60.0, delivery_limit=3, queue_length=100, orphans=4),
)

Kind = TypeVar("Kind")


def configured(**sections: dict[str, Any]) -> PoolConfig:
    """Return `CONFIG` with some settings replaced, given by section."""
    changed = {name: replace(getattr(CONFIG, name), **how) for name, how in sections.items()}
    return replace(CONFIG, **changed)


class PoolBench:
    """A manager's engine under test. `out` has its effects until the test takes them."""

    def __init__(self, config: PoolConfig = CONFIG) -> None:
        self.config = config
        self.engine = PoolEngine(config)
        self.now = 100.0
        self.out: list[Any] = []

    def feed(self, event: Any) -> list[Any]:
        """Feed the engine one input; record and return its effects."""
        effects = self.engine.handle([event], self.now)
        self.out += effects
        return effects

    def take(self, kind: type[Kind]) -> list[Kind]:
        """Remove the effects of one type from `out`, and return them."""
        taken = [effect for effect in self.out if isinstance(effect, kind)]
        self.out = [effect for effect in self.out if not isinstance(effect, kind)]
        return taken

    def asked(self, kind: type[Kind]) -> Kind:
        """Remove the only effect of a type from `out`, and return it."""
        [effect] = self.take(kind)
        return effect

    def pass_time(self, seconds: float) -> None:
        """Advance the clock, with a wake-up at each deadline of the engine and one at the end."""
        until = self.now + seconds
        while (at := self.engine.deadline()) is not None and at <= until:
            self.now = max(self.now, at)
            self.feed(Wake())
            assert (self.engine.deadline() or until + 1) > self.now, "it is never satisfied"
        self.now = until
        self.feed(Wake())

    # --- sequences of effects and answers ---------------------------------------------------------
    def connect(self, queues: dict[str, bool] | None = None, **groups: RunningGroup) -> None:
        """Connect the engine; its first listings return these queues and running groups."""
        self.feed(Connected())
        self.list_groups(**groups)
        self.feed(QueuesListed(self.asked(ListQueues).ticket, queues or {}))
        self.list_groups(**groups)

    def list_groups(self, **groups: RunningGroup) -> None:
        """Answer each `ListGroups` with these running groups, until the engine sends no more."""
        while listings := self.take(ListGroups):
            self.feed(GroupsListed(listings[-1].ticket, groups))

    def list_queues(self, queues: dict[str, bool]) -> None:
        """Answer the only `ListQueues` with these queues."""
        self.feed(QueuesListed(self.asked(ListQueues).ticket, queues))

    def bind(self, key: str) -> None:
        """Confirm that the key's queue was declared and bound."""
        assert self.asked(DeclareQueue).key == key
        self.feed(QueueDone(key))
        self.feed(QueueDone(key))

    def begin(self, key: str = "42") -> None:
        """Deliver an orphan, and answer all effects until it is forwarded and its group runs."""
        self.feed(OrphanArrived(f"tag-{key}", key))
        self.bind(key)
        self.feed(Published(self.asked(Forward).ticket))
        self.list_groups(**{key: RunningGroup("1", 1)})
        self.out = [effect for effect in self.out if isinstance(effect, ListQueues)]

    def report(self, key: str = "42", event: str = "request-received") -> None:
        """Deliver an activity report of one of the key's workers."""
        self.feed(ActivityArrived(key, event))

    def inspect(self, key: str = "42", ready: int = 0, held: int = 0, consumers: int = 0) -> None:
        """Answer the only `InspectQueue` with these counts of messages and consumers."""
        assert self.asked(InspectQueue).key == key
        self.feed(QueueInspected(key, ready, held, consumers))

    def settle(self, key: str = "42") -> None:
        """Answer two inspections, `settle_s` apart, with an empty queue without consumers."""
        self.inspect(key)
        assert not self.take(DeleteQueue), "RabbitMQ may not yet know what consumers hold"
        self.pass_time(self.config.loops.settle_s)
        self.inspect(key)


def dead_letter(reason: Any = "expired", **how: Any) -> DeadLetterArrived:
    """Return a dead letter."""
    fields = {"reply_to": "replies", "correlation_id": "c1"} | how
    headers = {"x-first-death-reason": reason} | fields.pop("headers", {})
    return DeadLetterArrived("tag", "42", headers, **fields)
