"""Titanic at its broker: a worker's engine for each of its services, and a client's for dispatch.

Neither has handlers or futures behind it: what the broker hands out goes to the desk as it is, and
the desk's answers go back to the engine.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final

from requite.client.stacks import ClientSettings, stack_for
from requite.engine import Finished, Input
from requite.errors import CallError, ConfigurationError
from requite.framing import Limits, Mechanism, Null, PlainClient, SocketType, Zmtp
from requite.heartbeat import HeartbeatPolicy
from requite.protocols.majordomo.dialects import by_version
from requite.protocols.majordomo.jobs import WorkerPolicy
from requite.protocols.majordomo.wire import Dialect
from requite.protocols.majordomo.worker import MajordomoWorker
from requite.protocols.titanic.inputs import Answered, Asked
from requite.protocols.titanic.wire import SERVICES, STANDARD_SERVICES
from requite.reach import Reach
from requite.request import Reply, Request, RetryPolicy, Status
from requite.shell.aio import AioShell
from requite.shell.journaling import new_name
from requite.shell.wires import Wires
from requite.url import ServiceUrl

# Everything that clients of one broker may have outstanding is taken at once: what waits for the
# disk here shares one sync, and what waits at the broker does not.
_CAPACITY: Final = 16_384
_CAPACITY_OTHERS: Final = 64
# A worker of an older dialect takes one request at a time. So many of them share a sync.
_COPIES: Final = 32
_CONNECTIONS_MAX: Final = 64  # of a client of an older dialect, one for each request that is out
_LOGGER: Final = "requite.titanic"

_OK: Final = Status.OK
_new: Final = tuple.__new__  # half the price of calling a NamedTuple's class, on the hot path

Take = Callable[[Input], None]


class Post:
    """One service at the broker: an engine with a connection of its own."""

    def __init__(self, engine: MajordomoWorker, wires: Wires, take: Take) -> None:
        self._take = take
        self.shell = AioShell(
            engine,
            wires,
            deliver=self._deliver,
            abandon=_go_on,
            logger=_LOGGER,
        )
        self._submit = self.shell.submit_soon

    def _deliver(self, job: Any, request: Request) -> None:
        token = (self, job)
        self._take(_new(Asked, (token, request.service, request.frames, request.idempotency_key)))

    def finish(self, job: Any, frames: Sequence[bytes]) -> None:
        """Answer a request."""
        self._submit(_new(Finished, (job, frames, _OK)))


@dataclass(frozen=True, slots=True)
class Place:
    """Which broker, and how to speak with it."""

    reach: Reach
    dialect: str
    size_max: int
    heartbeat: HeartbeatPolicy


def posts_at(place: Place, take: Take) -> list[Post]:
    """Make the posts of a Titanic at a broker. `take` gets what is asked there."""
    url = place.reach.only_dialled()
    if url.service:
        raise ConfigurationError(f"Titanic's services have their own names, not {url.service!r}")
    dialect = by_version(place.dialect)
    wires = _wires(url, place.size_max)
    return [
        Post(_engine(dialect, service, place.heartbeat), wires, take)
        for service in _services(dialect)
    ]


def _services(dialect: Dialect) -> Iterator[str]:
    """The services to sign up for, each as often as it takes."""
    for service in SERVICES:
        is_one_by_one = service in STANDARD_SERVICES and not dialect.has_ids
        yield from [service] * (_COPIES if is_one_by_one else 1)


def _engine(dialect: Dialect, service: str, heartbeat: HeartbeatPolicy) -> MajordomoWorker:
    several = _CAPACITY if service in STANDARD_SERVICES else _CAPACITY_OTHERS
    policy = WorkerPolicy(capacity=several if dialect.has_ids else 1, heartbeat=heartbeat)
    return MajordomoWorker(dialect, service, policy, rng=random.random, instance=new_name())


def _wires(url: ServiceUrl, size_max: int) -> Wires:
    mechanism: Mechanism = Null()
    if url.user is not None and url.password is not None:
        mechanism = PlainClient(url.user, url.password)
    limits = Limits.for_bodies(size_max)
    return Wires(
        lambda: Zmtp(SocketType.DEALER, mechanism=mechanism, limits=limits),
        dial_to=url.addresses,
    )


def dispatching(place: Place, slots: int, take: Take) -> AioShell:
    """Make the shell of a client whose calls are `Submit` effects; `take` gets what came of them.

    It never tries again by itself: when, and how often, is for whoever submits to say.
    """
    settings = ClientSettings(
        retry=RetryPolicy(attempts=1),
        slots=slots,
        heartbeat=place.heartbeat if by_version(place.dialect).has_ids else None,
        dialect=place.dialect,
        connections=min(slots, _CONNECTIONS_MAX),
        message_size_max=place.size_max,
    )
    stack = stack_for(place.reach, settings)

    def deliver(token: Any, what: Reply) -> None:
        take(Answered(token, what))

    def deliver_all(pairs: Iterable[tuple[Any, Reply]]) -> None:
        for token, what in pairs:
            take(Answered(token, what))

    def fail(token: Any, error: CallError) -> None:
        take(Answered(token, error))

    return AioShell(
        stack.make_engine(new_name(), None),
        stack.wires,
        deliver=deliver,
        deliver_all=deliver_all,
        fail=fail,
        logger=_LOGGER,
    )


def _go_on(_token: Any, _reason: str) -> None:
    """Answer all the same: what is on its way to the disk cannot be called back."""
