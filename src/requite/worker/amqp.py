"""Workers of services on RabbitMQ: RPC over AMQP 0.9.1."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from requite.client.amqp import pool_of, wires_to
from requite.core.liveness import heartbeat_of
from requite.errors import ConfigurationError
from requite.protocols.amqp.jobs import Job
from requite.protocols.amqp.policy import HEARTBEAT_DEFAULT, PREFETCH_MAX, ResponderPolicy
from requite.protocols.amqp.post import Post, pool_post, service_post
from requite.protocols.amqp.responder import AmqpResponder
from requite.reach import Reach
from requite.url import ServiceUrl
from requite.worker.handler import Service
from requite.worker.stacks import CAPACITY_DEFAULT, Part, Unanswered, WorkerSettings

_UNANSWERED: Final = Unanswered("gives no requests yet: RabbitMQ has not confirmed the consumer")
_FOR_CLIENTS: Final = ("confirm", "reply")
_UNUSED: Final = {
    "dialect": "no dialects (MDP has)",
    "handler_timeout": "no leases (MDP 0.3 has): put asyncio.timeout into the handler",
    "hops": "no devices (SP has)",
}


def parts(reach: Reach, services: Sequence[Service], settings: WorkerSettings) -> list[Part]:
    """Make the parts, one per service, each with a connection of its own. Raises
    `ConfigurationError`."""
    url = reach.only_dialled()
    _check(url, services, settings)
    return [_part(url, service, settings) for service in services]


def _part(url: ServiceUrl, service: Service, settings: WorkerSettings) -> Part:
    capacity = CAPACITY_DEFAULT if settings.capacity is None else settings.capacity
    if not 1 <= capacity <= PREFETCH_MAX:
        raise ConfigurationError(f"capacity is 1 to {PREFETCH_MAX}, not {capacity}")
    heartbeat = heartbeat_of(settings.heartbeat, HEARTBEAT_DEFAULT)
    post = _post(url, service, settings)
    policy = ResponderPolicy(prefetch=capacity, heartbeat=heartbeat)
    if not post.declares:  # the queue of a pool counts, and its manager has the dead letters
        policy = ResponderPolicy(prefetch=capacity, heartbeat=heartbeat, attempts_max=None)
    engine = AmqpResponder(
        post,
        policy,
        service=service.name,
        instance=settings.name,
        chronicle=settings.chronicle,
    )
    return Part(
        service,
        engine,
        wires_to(url, heartbeat, settings.message_size_max),
        capacity,
        settings.threads or capacity,
        1,
        call_id=_call_id,
        unanswered=_UNANSWERED,
    )


def _post(url: ServiceUrl, service: Service, settings: WorkerSettings) -> Post:
    options = url.options
    worker_id = options.get("id", settings.name.hex())
    pool = pool_of(url)
    if pool is None:
        return service_post(options.get("queue", service.name), worker_id)
    queue, activity = options.get("queue", ""), options.get("activity", "")
    return pool_post(pool, options["key"], worker_id, queue, activity)


def _check(url: ServiceUrl, services: Sequence[Service], settings: WorkerSettings) -> None:
    options = url.options
    for name in _FOR_CLIENTS:
        if name in options:
            raise ConfigurationError(f"the option {name!r} of the URL is for clients")
    if "pool" in options and "key" not in options:
        raise ConfigurationError("which group of the pool is served? Name it: key=... in the URL")
    if len(services) > 1 and ("pool" in options or "queue" in options):
        raise ConfigurationError(
            "one queue has one service: give each of the others a worker, or leave queue= and"
            " pool= out, so that each service has the queue of its name"
        )
    for name, has in _UNUSED.items():
        if getattr(settings, name) is not None:
            raise ConfigurationError(f"AMQP has {has}; leave `{name}` out")


def _call_id(job: Job) -> bytes:
    return job.call_id
