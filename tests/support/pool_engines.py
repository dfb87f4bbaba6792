"""A manager's engine on a bench: a hand that answers for RabbitMQ and the driver, and a clock."""

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
    """Return the bench's configuration with some settings replaced."""
    changed = {name: replace(getattr(CONFIG, name), **how) for name, how in sections.items()}
    return replace(CONFIG, **changed)


class PoolBench:
    """Feeds an engine, and keeps what it asks for until that is answered."""

    def __init__(self, config: PoolConfig = CONFIG) -> None:
        self.config = config
        self.engine = PoolEngine(config)
        self.now = 100.0
        self.out: list[Any] = []

    def feed(self, event: Any) -> list[Any]:
        """Feed an input; return what it leads to."""
        effects = self.engine.handle([event], self.now)
        self.out += effects
        return effects

    def take(self, kind: type[Kind]) -> list[Kind]:
        """Return what was asked for of one kind, once."""
        taken = [effect for effect in self.out if isinstance(effect, kind)]
        self.out = [effect for effect in self.out if not isinstance(effect, kind)]
        return taken

    def asked(self, kind: type[Kind]) -> Kind:
        """Return the one thing that was asked for of a kind."""
        [effect] = self.take(kind)
        return effect

    def pass_time(self, seconds: float) -> None:
        """Let time pass, and wake the engine whenever it wants to be."""
        until = self.now + seconds
        while (at := self.engine.deadline()) is not None and at <= until:
            self.now = max(self.now, at)
            self.feed(Wake())
            assert (self.engine.deadline() or until + 1) > self.now, "it is never satisfied"
        self.now = until
        self.feed(Wake())

    # --- whole steps ------------------------------------------------------------------------------
    def connect(self, queues: dict[str, bool] | None = None, **groups: RunningGroup) -> None:
        """Come up, where these queues are, and these groups run."""
        self.feed(Connected())
        self.list_groups(**groups)
        self.feed(QueuesListed(self.asked(ListQueues).ticket, queues or {}))
        self.list_groups(**groups)

    def list_groups(self, **groups: RunningGroup) -> None:
        """Answer what runs, for as long as the engine asks."""
        while listings := self.take(ListGroups):
            self.feed(GroupsListed(listings[-1].ticket, groups))

    def list_queues(self, queues: dict[str, bool]) -> None:
        """Answer which queues there are."""
        self.feed(QueuesListed(self.asked(ListQueues).ticket, queues))

    def bind(self, key: str) -> None:
        """Let a queue be declared and bound."""
        assert self.asked(DeclareQueue).key == key
        self.feed(QueueDone(key))
        self.feed(QueueDone(key))

    def begin(self, key: str = "42") -> None:
        """Have an orphan's group started, and the orphan handed over."""
        self.feed(OrphanArrived(f"tag-{key}", key))
        self.bind(key)
        self.feed(Published(self.asked(Forward).ticket))
        self.list_groups(**{key: RunningGroup("1", 1)})
        self.out = [effect for effect in self.out if isinstance(effect, ListQueues)]

    def report(self, key: str = "42", event: str = "request-received") -> None:
        """Let a worker report."""
        self.feed(ActivityArrived(key, event))

    def inspect(self, key: str = "42", ready: int = 0, held: int = 0, consumers: int = 0) -> None:
        """Answer what is in a queue."""
        assert self.asked(InspectQueue).key == key
        self.feed(QueueInspected(key, ready, held, consumers))

    def settle(self, key: str = "42") -> None:
        """Answer twice that a queue is empty and unused."""
        self.inspect(key)
        assert not self.take(DeleteQueue), "RabbitMQ may not yet know what consumers hold"
        self.pass_time(self.config.loops.settle_s)
        self.inspect(key)
