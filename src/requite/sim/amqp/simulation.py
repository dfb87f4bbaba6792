"""A run of RPC over AMQP: its phases and its checkers."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Final

from requite.sim.amqp.cast import AmqpCast
from requite.sim.amqp.checkers import (
    AckedLast,
    Bounded,
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
from requite.sim.amqp.knobs import NOBODY, AmqpClientSpec, AmqpKnobs
from requite.sim.amqp.party import AmqpParty
from requite.sim.amqp.stage import AmqpParts, AmqpStage
from requite.sim.amqp.tables import left_after_calls, left_after_drain, not_settled
from requite.sim.kernel.checkers.calls import EndsOnce, HonestErrors, OwnReply, PartialsInOrder
from requite.sim.kernel.checkers.robustness import NobodyNotices
from requite.sim.kernel.history import Checker
from requite.sim.kernel.knobs import ANSWERING, Behaviour
from requite.sim.kernel.parties import (
    LEAVE_S,
    PROBE_S,
    PartiesSimulation,
    handler_s_max,
    reconnect_s,
)
from requite.sim.kernel.plan import Plan
from requite.sim.kernel.result import Options
from requite.sim.kernel.simulation import Luck, Phase
from requite.sim.kernel.transcript import show_body
from requite.sim.kernel.workload import CallPlan, draw_calls, plain_call
from requite.sim.rabbitmq.checkers import NoMistakes
from requite.sim.rabbitmq.server_methods import NAMES, unpack

AMQP_CHECKERS: Final[tuple[type[Checker], ...]] = (
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


class AmqpSimulation(PartiesSimulation):
    """A run with clients, workers, and RabbitMQ between them."""

    knobs_type = AmqpKnobs
    checkers = AMQP_CHECKERS
    knobs: AmqpKnobs
    cast: AmqpCast

    def __init__(self, plan: Plan, options: Options) -> None:
        super().__init__(plan, options)
        self.injector = AmqpFaults(self.cast, self.knobs)

    def make_cast(self) -> AmqpCast:
        """See `PartiesSimulation.make_cast`."""
        return AmqpCast(AmqpStage.of(self, AmqpParts))

    def describe(self, _sender: str, message: Sequence[bytes]) -> str:
        """See the function `describe`."""
        return describe(message)

    @staticmethod
    def draw_calls(knobs: AmqpKnobs, luck: Luck) -> Iterator[CallPlan]:
        """Draw the calls, and the service of each."""
        rng = luck("services")
        for plan in draw_calls(knobs, luck("calls"), _may_be_endless):
            service = NOBODY if rng.random() < knobs.nobody_p else rng.choice(knobs.services)
            yield plan._replace(service=service, wants_partials=rng.random() < knobs.partials_p)

    def phases(self) -> Iterable[Phase]:
        """Return the phases after the faults: settle, probe, drain."""
        return (self.settle, self.ask, self._drain_clients, self._drain_workers)

    # --- liveness (I10) ---------------------------------------------------------------------------
    def settle_s(self) -> float:
        """See the function `settle_s`."""
        return settle_s(self.knobs)

    def not_settled(self) -> list[str]:
        """See `tables.not_settled`."""
        return not_settled(self.cast, self.knobs)

    def probes(self, _client: str) -> int:
        """Return the number of probe calls of a client: two for each service."""
        return 2 * len(self.knobs.services)

    def probe(self, client: str, number: int) -> CallPlan:
        """See `PartiesSimulation.probe`."""
        services = self.knobs.services
        return plain_call(client, number, PROBE_S)._replace(
            service=services[number % len(services)]
        )

    # --- bounded memory (I9) ----------------------------------------------------------------------
    def left_after_calls(self) -> list[str]:
        """See `tables.left_after_calls`."""
        return left_after_calls(self.cast)

    def left_after_drain(self, party: AmqpParty) -> Iterator[str]:
        """See `tables.left_after_drain`."""
        return left_after_drain(party)

    def _drain_clients(self) -> bool:
        return self.drain_all("clients", self.cast.clients, self.left_in_the_end(LEAVE_S))

    def _drain_workers(self) -> bool:
        return self.drain_all("workers", self.cast.workers, [])


def _may_be_endless(client: AmqpClientSpec, behaviour: Behaviour, idempotent: bool) -> bool:
    """Whether a call may have no deadline: if RabbitMQ loses its request, only an attempt timeout
    ends it."""
    return idempotent and client.attempt_s is not None and behaviour in ANSWERING


def settle_s(knobs: AmqpKnobs) -> float:
    """Return the time in seconds in which all must settle once faults have ended (I10).

    It adds up what may happen one after the other: a dead connection is detected and replaced,
    queues are declared and checked, deadlines pass, attempts are retried, and one worker works off
    all published requests, some of which were published several times.
    """
    deadlines_s = 1.5 * knobs.timeout_s
    tries_s = sum((client.attempt_s or 0.0) * client.attempts for client in knobs.clients)
    handler_s = handler_s_max(knobs.service_s, knobs.behaviours)
    work_s = (2 * knobs.calls + 100) * handler_s * knobs.attempts_max
    gone_s = 6 * knobs.interval_s * knobs.liveness
    return reconnect_s(knobs.network) + deadlines_s + tries_s + gone_s + work_s


def describe(message: Sequence[bytes]) -> str:
    """Describe a message for the transcript."""
    if not message:
        return "HEARTBEAT"
    text = f"{int.from_bytes(message[0], 'big')} {NAMES[message[1][:4]]}"
    if len(message) < 4:
        return text
    return f"{text}: {show_body(unpack(message[3]) or [message[3]])}"
