"""Titanic at its broker: a worker's engine for each of its services, and a client's for dispatch.

Neither has handlers or futures behind it: what the broker hands out goes to the desk as it is, and
the desk's answers go back to the engine.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Final

from requite.engine import Input
from requite.errors import CallError
from requite.protocols.majordomo.calls import ClientPolicy
from requite.protocols.majordomo.client import client_engine
from requite.protocols.majordomo.jobs import WorkerPolicy
from requite.protocols.majordomo.wire import Dialect
from requite.protocols.majordomo.worker import MajordomoWorker
from requite.protocols.titanic.inputs import Answered, Asked
from requite.protocols.titanic.wire import SERVICES, STANDARD_SERVICES
from requite.request import Reply, Request, RetryPolicy
from requite.shell.aio import AioShell
from requite.shell.connections import Connections
from requite.shell.journaling import new_name
from requite.titanic.endpoint import BrokerEndpoint

# Everything that clients of one broker may have outstanding is taken at once: what waits for the
# disk here shares one sync, and what waits at the broker does not.
_CAPACITY: Final = 16_384
_CAPACITY_OTHERS: Final = 64
# A worker of an older dialect takes one request at a time. So many of them share a sync.
_COPIES: Final = 32
_CONNECTIONS_MAX: Final = 64  # of a client of an older dialect, one for each request that is out
_LOGGER: Final = "requite.titanic"
_SEQUENCES: Final = 1 << 32

_new: Final = tuple.__new__  # half the price of calling a NamedTuple's class, on the hot path

Take = Callable[[Input], None]


class TitanicService:
    """One service at the broker: an engine with a connection of its own."""

    def __init__(self, engine: MajordomoWorker, connections: Connections, take: Take) -> None:
        self._take = take
        self.shell = AioShell(
            engine, connections, deliver=self._deliver, abandon=_go_on, logger=_LOGGER
        )

    def answer_all(self, answers: Sequence[Input]) -> None:
        """Take the `Finished` of a turn, each for the job of a request."""
        self.shell.host.submit(*answers)

    def _deliver(self, job: Any, request: Request) -> None:
        token = (self, job)
        self._take(_new(Asked, (token, request.service, request.frames, request.idempotency_key)))


def services_at(endpoint: BrokerEndpoint, take: Take) -> list[TitanicService]:
    """Make the posts of a Titanic at a broker. `take` gets what is asked there."""
    return [
        TitanicService(_engine(endpoint, service), endpoint.connections, take)
        for service in _service_names(endpoint.dialect)
    ]


def _service_names(dialect: Dialect) -> Iterator[str]:
    """The services to sign up for, each as often as it takes."""
    for service in SERVICES:
        is_one_by_one = service in STANDARD_SERVICES and not dialect.has_ids
        yield from [service] * (_COPIES if is_one_by_one else 1)


def _engine(endpoint: BrokerEndpoint, service: str) -> MajordomoWorker:
    several = _CAPACITY if service in STANDARD_SERVICES else _CAPACITY_OTHERS
    policy = WorkerPolicy(
        capacity=several if endpoint.dialect.has_ids else 1, heartbeat=endpoint.heartbeat
    )
    return MajordomoWorker(
        endpoint.dialect, service, policy, rng=random.random, instance=new_name()
    )


def dispatching(endpoint: BrokerEndpoint, slots: int, take: Take) -> AioShell:
    """Make the shell of a client whose calls are `Submit` effects; `take` gets what came of them.

    It never tries again by itself: when, and how often, is for whoever submits to say.
    """
    policy = ClientPolicy(
        slots=slots,
        retry=RetryPolicy(attempts=1),
        heartbeat=endpoint.heartbeat,
        connections_max=min(slots, _CONNECTIONS_MAX),
    )
    engine = client_engine(
        endpoint.dialect,
        policy,
        rng=random.random,
        first_sequence=random.SystemRandom().randrange(_SEQUENCES),
        origin=new_name(),
    )

    def deliver(token: Any, what: Reply) -> None:
        take(_new(Answered, (token, what)))

    def fail(token: Any, error: CallError) -> None:
        take(Answered(token, error))

    return AioShell(engine, endpoint.connections, deliver=deliver, fail=fail, logger=_LOGGER)


def _go_on(_token: Any, _reason: str) -> None:
    """Answer all the same: what is on its way to the disk cannot be called back."""
