"""Titanic's links to its broker: a worker engine per service, and a client engine to dispatch.

They have no handlers or futures: requests go to the desk as inputs, and the desk's answers go back
to the engine.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Final, Protocol

from requite.engine import Cancel, Drain, Input, Submit
from requite.errors import CallError
from requite.protocols.majordomo.calls import ClientPolicy
from requite.protocols.majordomo.client import client_engine
from requite.protocols.majordomo.jobs import WorkerPolicy
from requite.protocols.majordomo.wire import Dialect
from requite.protocols.majordomo.wire_direct import DIRECT
from requite.protocols.majordomo.worker import MajordomoWorker
from requite.protocols.titanic.inputs import Answered, Asked
from requite.protocols.titanic.records import OWNER_SIZE_MAX
from requite.protocols.titanic.wire import SERVICES, STANDARD_SERVICES
from requite.request import Reply, Request, RetryPolicy
from requite.shell import entropy
from requite.shell.aio import AioShell
from requite.shell.connections import Connections
from requite.shell.journaling import new_name
from requite.titanic.endpoint import BrokerEndpoint

# As many as a broker gives to a worker (`BrokerPolicy.worker_capacity_max`): those that wait here
# share one sync, those that wait at the broker do not.
_CAPACITY: Final = 1024
_CAPACITY_OTHERS: Final = 64
# A worker of an older dialect takes one request at a time; this many of them share a sync.
_COPIES: Final = 32
_CONNECTIONS_MAX: Final = 64  # of a client of an older dialect: one per request in flight
_LOGGER: Final = "requite.titanic"
_SEQUENCES: Final = 1 << 32

_new: Final = tuple.__new__  # half the cost of calling a NamedTuple's class; hot path

Take = Callable[[Input], None]


class Links(Protocol):
    """What connects a Titanic to its broker; requests and outcomes go to the desk as inputs."""

    def start(self) -> None:
        """Start on the running loop; connections are made in the background."""

    def call(self, effect: Submit | Cancel) -> None:
        """Submit a call to the broker, or cancel one, by the end of the loop iteration."""

    def drain_services(self) -> None:
        """Accept no new requests; those that were accepted can still be answered."""

    async def until_drained(self) -> None:
        """After `drain_services`, wait until all accepted requests are answered."""

    @property
    def trouble(self) -> str:
        """Why requests cannot arrive, as text; "" if they can."""

    async def close(self) -> None:
        """Close all connections; queued output is still sent."""


class BrokerLinks:
    """The connections to a broker: one for each service, and one or more to dispatch."""

    def __init__(self, endpoint: BrokerEndpoint, slots: int, take: Take) -> None:
        self._services = [
            TitanicService(_engine(endpoint, service), endpoint.connections, take)
            for service in _service_names(endpoint.dialect)
        ]
        self._calling = dispatching(endpoint, slots, take)
        is_inside = endpoint.dialect is DIRECT
        self.call = self._calling.submit_soon if is_inside else self._call_as_itself

    def start(self) -> None:
        """See `Links.start`."""
        for shell in self._shells():
            shell.start()

    def drain_services(self) -> None:
        """See `Links.drain_services`."""
        for service in self._services:
            service.shell.submit(Drain())

    async def until_drained(self) -> None:
        """See `Links.until_drained`."""
        await asyncio.gather(*(service.shell.drain() for service in self._services))

    @property
    def trouble(self) -> str:
        """See `Links.trouble`."""
        return next(filter(None, (service.shell.trouble for service in self._services)), "")

    async def close(self) -> None:
        """See `Links.close`."""
        await asyncio.gather(*(shell.close() for shell in self._shells()))

    def _call_as_itself(self, effect: Submit | Cancel) -> None:
        """See `Links.call`. Outside of the broker a Titanic calls as its own user: to act for the
        owners of requests it would need a right."""
        if isinstance(effect, Submit):
            effect.principal = b""
        self._calling.submit_soon(effect)

    def _shells(self) -> Iterator[AioShell]:
        yield self._calling
        yield from (service.shell for service in self._services)


class TitanicService:
    """One of Titanic's services at the broker: a worker engine with a separate connection."""

    def __init__(self, engine: MajordomoWorker, connections: Connections, take: Take) -> None:
        self._take = take
        self.shell = AioShell(
            engine, connections, deliver=self._deliver, abandon=_go_on, logger=_LOGGER
        )

    def answer_all(self, answers: Sequence[Input]) -> None:
        """Submit the `Finished` inputs of a turn."""
        self.shell.host.submit(*answers)

    def _deliver(self, job: Any, request: Request) -> None:
        token = (self, job)
        owner = request.principal.encode()[:OWNER_SIZE_MAX]
        key = request.idempotency_key
        self._take(_new(Asked, (token, request.service, request.frames, key, owner, request.trace)))


def _service_names(dialect: Dialect) -> Iterator[str]:
    """Yield the services to register, repeated for dialects with one request at a time."""
    for service in SERVICES:
        is_one_by_one = service in STANDARD_SERVICES and not dialect.has_ids
        yield from [service] * (_COPIES if is_one_by_one else 1)


def _engine(endpoint: BrokerEndpoint, service: str) -> MajordomoWorker:
    several = _CAPACITY if service in STANDARD_SERVICES else _CAPACITY_OTHERS
    policy = WorkerPolicy(
        capacity=several if endpoint.dialect.has_ids else 1, heartbeat=endpoint.heartbeat
    )
    return MajordomoWorker(
        endpoint.dialect, service, policy, rng=entropy.jitter, instance=new_name()
    )


def dispatching(endpoint: BrokerEndpoint, slots: int, take: Take) -> AioShell:
    """Return the shell of a client for `Submit` effects; `take` gets their outcomes as `Answered`.

    It does not retry: Titanic's engine does.
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
        rng=entropy.jitter,
        first_sequence=entropy.source.randrange(_SEQUENCES),
        origin=new_name(),
    )

    def deliver(token: Any, what: Reply) -> None:
        take(_new(Answered, (token, what)))

    def fail(token: Any, error: CallError) -> None:
        take(Answered(token, error))

    return AioShell(engine, endpoint.connections, deliver=deliver, fail=fail, logger=_LOGGER)


def _go_on(_token: Any, _reason: str) -> None:
    """Ignore the cancel: a write in flight cannot be undone, so the request is answered."""
