"""Workers that speak SP: one REP end, which serves whoever is connected to it."""

from __future__ import annotations

import random
from collections.abc import Sequence

from requite.errors import ConfigurationError
from requite.framing import Limits
from requite.protocols.scalability.policy import RepPolicy
from requite.protocols.scalability.rep import ScalabilityWorker
from requite.protocols.scalability.wire import HOPS_DEFAULT, IDS
from requite.reach import Reach
from requite.shell.wires import Wires
from requite.sp.endpoints import LINK_LIMITS, Role, check_whole, refuse_unused, to_dial, to_listen
from requite.worker.handler import Service
from requite.worker.stacks import CAPACITY_DEFAULT, Part, WorkerSettings


def parts(reach: Reach, services: Sequence[Service], settings: WorkerSettings) -> list[Part]:
    """Make the one part. Raises `ConfigurationError`."""
    _check(services, settings)
    refuse_unused(reach.dials + reach.binds, Role.REP)
    [service] = services
    capacity = CAPACITY_DEFAULT if settings.capacity is None else settings.capacity
    hops = HOPS_DEFAULT if settings.hops is None else settings.hops
    check_whole(capacity=capacity, hops=hops)
    policy = RepPolicy(
        capacity=capacity,
        hops=hops,
        reply_size_max=settings.message_size_max,
    )
    engine = ScalabilityWorker(
        policy,
        service=service.name,
        first_id=random.SystemRandom().randrange(IDS),
        instance=settings.name,
        chronicle=settings.chronicle,
    )
    limits = Limits.for_bodies(settings.message_size_max)
    wires = Wires(
        keep=to_dial(reach.dials, Role.REP, limits),
        listen=to_listen(reach.binds, Role.REP, limits),
        limits=LINK_LIMITS,
    )
    return [Part(service, engine, wires, capacity, settings.threads or capacity, 1, holds=True)]


def _check(services: Sequence[Service], settings: WorkerSettings) -> None:
    if len(services) > 1:
        raise ConfigurationError(
            "SP names no services, so a worker has one: give each of the others a worker and an"
            " address of its own (MDP has named services)"
        )
    for name, can in (
        ("heartbeat", "no heartbeats (MDP has): a client asks again when its connection is lost"),
        ("dialect", "no dialects (MDP has)"),
        ("handler_timeout", "no leases (MDP 0.3 has): put asyncio.timeout into the handler"),
    ):
        if getattr(settings, name) is not None:
            raise ConfigurationError(f"SP has {can}; leave `{name}` out")
