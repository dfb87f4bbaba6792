"""A run of RPC over AMQP: its checkers, its tables and its phases."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Any, ClassVar

from requite.sim.amqp.checkers import (
    AckedLast,
    Complete,
    DrainLosesNothing,
    Heard,
    LosesNothing,
    NeverInVain,
    ReturnedAtOnce,
    RunsBounded,
    SentOnce,
)
from requite.sim.amqp.faults import AmqpFaults
from requite.sim.amqp.knobs import AmqpClientSpec, AmqpKnobs
from requite.sim.amqp.parties import AmqpCast, AmqpParts
from requite.sim.amqp.words import describe
from requite.sim.kernel.checkers.calls import EndsOnce, HonestErrors, OwnReply, PartialsInOrder
from requite.sim.kernel.checkers.limits import Bounded
from requite.sim.kernel.checkers.robustness import NobodyNotices
from requite.sim.kernel.knobs import ANSWERING, Behaviour
from requite.sim.kernel.parties import PartiesSimulation, handler_s_max, reconnect_s
from requite.sim.kernel.plan import Plan
from requite.sim.kernel.result import Options
from requite.sim.kernel.simulation import Luck
from requite.sim.kernel.stage import RunStage
from requite.sim.kernel.workload import NOBODY, CallPlan
from requite.sim.rabbitmq.checkers import NoMistakes
from requite.sim.rabbitmq.process import RABBIT


class AmqpSimulation(PartiesSimulation):
    """A run with clients, workers, and RabbitMQ between them."""

    knobs_type = AmqpKnobs
    checkers = (
        EndsOnce,
        OwnReply,
        PartialsInOrder,
        Complete,
        HonestErrors,
        SentOnce,
        RunsBounded,
        NeverInVain,
        AckedLast,
        ReturnedAtOnce,
        Bounded,
        NoMistakes,
        DrainLosesNothing,
        Heard,
        LosesNothing,
        NobodyNotices,
    )
    idle: ClassVar = {
        "rabbit": (),
        "client": ("held", "sent", "unconfirmed"),
        "worker": ("running", "abandoned", "unconfirmed"),
    }
    # Caches with a limit: encoded methods, remembered cancels and closed channels.
    constant = frozenset(
        {"._publishings", "._cancels._cancels", "._cancels._cancels[]", "._closed"}
    )
    drains = ("client", "worker")
    knobs: AmqpKnobs
    cast: AmqpCast

    def __init__(self, plan: Plan, options: Options) -> None:
        super().__init__(plan, options)
        self.injector = AmqpFaults(self.cast)

    def make_cast(self) -> AmqpCast:
        """See `PartiesSimulation.make_cast`."""
        return AmqpCast(RunStage.of(self, AmqpParts))

    def describe(self, _sender: str, message: Sequence[bytes]) -> str:
        """See `words.describe`."""
        return describe(message)

    @staticmethod
    def may_be_endless(client: AmqpClientSpec, behaviour: Behaviour, idempotent: bool) -> bool:
        """Whether a call may have no deadline: if RabbitMQ loses its request, only an attempt
        timeout ends it."""
        return idempotent and client.attempt_s is not None and behaviour in ANSWERING

    @classmethod
    def draw_calls(cls, knobs: AmqpKnobs, luck: Luck) -> Iterator[CallPlan]:
        """Draw the calls, and the service of each."""
        rng = luck("services")
        for plan in super().draw_calls(knobs, luck):
            service = NOBODY if rng.random() < knobs.nobody_p else rng.choice(knobs.services)
            yield plan._replace(service=service, wants_partials=rng.random() < knobs.partials_p)

    def settle_s(self) -> float:
        """Return the time in seconds in which all must settle once faults have ended (I10).

        It adds up what may happen one after the other: a dead connection is detected and replaced,
        queues are declared and checked, deadlines pass, attempts are retried, and one worker works
        off all published requests, some of which were published several times.
        """
        knobs = self.knobs
        deadlines_s = 1.5 * knobs.timeout_s
        tries_s = sum((client.attempt_s or 0.0) * client.attempts for client in knobs.clients)
        handler_s = handler_s_max(knobs.service_s, knobs.behaviours)
        work_s = (2 * knobs.calls + 100) * handler_s * knobs.attempts_max
        gone_s = 6 * knobs.interval_s * knobs.liveness
        return reconnect_s(knobs.network) + deadlines_s + tries_s + gone_s + work_s

    def expected(self, party: Any) -> Counter[Any] | None:
        """See `PartiesSimulation.expected`: RabbitMQ; `disagreements` counts its connections."""
        return None if party is self.cast.rabbit else Counter([(None, RABBIT)])

    def disagreements(self) -> Iterator[str]:
        """Yield workers that do not consume, and where RabbitMQ has other peers than there are."""
        cast = self.cast
        for worker in cast.workers:  # a client without a channel opens one for its next call
            if not worker.hub.snapshot().is_consuming:
                yield f"{worker.name} does not consume"
        sessions = cast.rabbit.hub.snapshot()
        expected = len(cast.clients) + len(cast.workers)
        if sessions != expected:
            yield f"RabbitMQ has {sessions} connections, not {expected}"
        for service in self.knobs.services:
            queue = cast.store.queues.get(cast.store.queue_of(service))
            workers = sum(worker.spec.service == service for worker in cast.workers)
            found = 0 if queue is None else queue.active_consumers
            if found != workers:
                yield f"{found} consumers take from {service}, not {workers}"

    def probes(self, _client: str) -> int:
        """Return the number of probe calls of a client: two for each service."""
        return 2 * len(self.knobs.services)

    def probe(self, client: str, number: int) -> CallPlan:
        """See `PartiesSimulation.probe`."""
        services = self.knobs.services
        return super().probe(client, number)._replace(service=services[number % len(services)])

    def left_after_calls(self) -> list[str]:
        """Return what any process or queue still holds when no calls are left."""
        return [*super().left_after_calls(), *self._left_in_queues()]

    def _left_in_queues(self) -> Iterator[str]:
        for name, queue in self.cast.store.queues.items():
            if queue.ready or queue.unacknowledged:
                counts = f"{len(queue.ready)} requests, and {queue.unacknowledged} unacknowledged"
                yield f"nothing is asked any more, but {name} holds {counts}"
