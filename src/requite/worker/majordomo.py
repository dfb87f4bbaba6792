"""Workers that speak MDP with a broker: one engine and one connection per service."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import replace
from typing import Final

from requite.core.liveness import heartbeat_of
from requite.errors import ConfigurationError
from requite.framing import BODY_FRAMES_MAX, Limits, SocketType, Zmtp, mechanism_to_show
from requite.protocols.majordomo.dialects import by_version
from requite.protocols.majordomo.jobs import WorkerPolicy, clients_call_id
from requite.protocols.majordomo.wire import WHO_HANGS_UP, Dialect
from requite.protocols.majordomo.worker import MajordomoWorker
from requite.reach import Reach
from requite.shell.wires import Wires
from requite.url import ServiceUrl
from requite.worker.handler import Service
from requite.worker.stacks import CAPACITY_DEFAULT, Part, Unanswered, WorkerSettings

_DIALECT_DEFAULT: Final = "0.3"
_HEARTBEAT_OF_OTHERS_S: Final = 3.0  # and a little more


def parts(reach: Reach, services: Sequence[Service], settings: WorkerSettings) -> list[Part]:
    """Make one part per service. Raises `ConfigurationError`."""
    url = reach.only_dialled()
    names = _names(url, services)
    if settings.hops is not None:
        raise ConfigurationError(
            "hops is for SP: an MDP broker does not forward requests to others"
        )
    dialect = by_version(settings.dialect or url.options.get("dialect", _DIALECT_DEFAULT))
    mechanism = mechanism_to_show(url.user, url.password)
    limits = Limits.for_bodies(settings.message_size_max)
    wires = Wires(
        lambda: Zmtp(
            SocketType.DEALER, mechanism=mechanism, limits=limits, who_hangs_up=WHO_HANGS_UP
        ),
        dial_to=url.addresses,
    )
    return [
        _part(each, name, dialect, wires, settings)
        for each, name in zip(services, names, strict=True)
    ]


def _names(url: ServiceUrl, services: Sequence[Service]) -> Sequence[str]:
    """Return the names to register by: the services' own, or that of a pool's group."""
    if "pool" not in url.options:
        if url.service:
            raise ConfigurationError(
                f"a worker's services have their own names, not {url.service!r}"
            )
        return [each.name for each in services]
    if len(services) > 1:
        raise ConfigurationError(
            "a group of a pool has one service: give each of the others a worker"
        )
    return [url.service]


def _part(
    each: Service, name: str, dialect: Dialect, wires: Wires, settings: WorkerSettings
) -> Part:
    capacity = settings.capacity
    if capacity is None:
        capacity = CAPACITY_DEFAULT if dialect.has_ids else 1
    threads = settings.threads or capacity
    policy = WorkerPolicy(
        capacity=capacity,
        heartbeat=heartbeat_of(settings.heartbeat),
        lease_s=settings.handler_timeout or 0.0,
    )
    if each.in_thread and policy.lease_s:
        policy = replace(policy, capacity=min(capacity, threads))
    engine = MajordomoWorker(
        dialect,
        name,
        policy,
        rng=random.random,
        instance=settings.name,
        chronicle=settings.chronicle,
    )
    part = Part(
        each,
        engine,
        wires,
        policy.capacity,
        threads,
        BODY_FRAMES_MAX,
        unanswered=_unanswered(dialect),
    )
    return part._replace(call_id=clients_call_id) if dialect.has_ids else part


def _unanswered(dialect: Dialect) -> Unanswered:
    """MDP 0.3 has brokers answer READY at once. Of older ones the next heartbeat is the first that
    is heard, which brokers after the Guide send every 2.5 s."""
    text = (
        f"has not answered READY: is it a broker of MDP {dialect.version}? (`--dialect` chooses"
        " another version)"
    )
    return Unanswered(text) if dialect.has_ids else Unanswered(text, _HEARTBEAT_OF_OTHERS_S)
