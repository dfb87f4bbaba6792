"""Clients of services on RabbitMQ: RPC over AMQP 0.9.1."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from requite.client.stacks import ClientSettings, Stack
from requite.core.liveness import HeartbeatPolicy, heartbeat_of
from requite.errors import ConfigurationError
from requite.framing.amqp import Amqp, AmqpSettings
from requite.protocols.amqp.caller import AmqpCaller
from requite.protocols.amqp.policy import (
    HEARTBEAT_DEFAULT,
    CallerPolicy,
    heartbeat_to_announce_s,
)
from requite.protocols.amqp.topology import Destination, Pool, check_queue
from requite.reach import Reach
from requite.request import RetryPolicy
from requite.shell.keeping import Endpoint
from requite.shell.wires import Wires
from requite.url import ServiceUrl

DEFAULT_USER: Final = "guest"
_FOR_WORKERS: Final = ("id", "activity")
_REPLIES: Final = ("queue", "direct")
_CONFIRMS: Final = {"yes": True, "no": False}


@dataclass(frozen=True, slots=True)
class _Abilities:
    """A request has one body; it may be named by a key, and have partial replies.

    `has_key`: the URL names the group of the pool, perhaps that of the empty key.
    """

    pool: Pool | None
    has_key: bool

    def check(self, *, key: bytes, partials: bool, idempotent: bool) -> None:
        """All of it can be had."""

    def check_service(self, service: str) -> None:
        """A service is a queue, or a group of a pool, by its key."""
        if self.pool is None:
            check_queue(service)
        elif not (service or self.has_key):
            raise ConfigurationError(
                "which group of the pool is to be called? Name it: key=... in the URL, or service="
            )
        else:
            self.pool.check_key(service)

    def check_frames(self, count: int) -> None:
        """AMQP has no frames."""
        if count > 1:
            raise ConfigurationError(
                f"a message of AMQP has one body, not {count} frames (MDP has frames): join them"
            )


def stack(reach: Reach, settings: ClientSettings) -> Stack:
    """Make the stack of a client of RabbitMQ. Raises `ConfigurationError`."""
    url = reach.only_dialled()
    if settings.dialect is not None:
        raise ConfigurationError("AMQP has no dialects (MDP has): leave `dialect` out")
    for name in _FOR_WORKERS:
        if name in url.options:
            raise ConfigurationError(f"the option {name!r} of the URL is for workers")
    pool = pool_of(url)
    if pool is not None and "queue" in url.options:
        raise ConfigurationError("callers of a pool name a key, and not a queue (queue=)")
    heartbeat = heartbeat_of(settings.heartbeat, HEARTBEAT_DEFAULT)
    policy = _policy(url, settings, heartbeat, persistent=pool is not None)
    destination = Destination() if pool is None else pool.destination

    return Stack(
        lambda origin, chronicle: AmqpCaller(
            policy,
            destination,
            origin=origin,
            first_sequence=int.from_bytes(origin[:4], "big"),
            chronicle=chronicle,
        ),
        wires_to(url, heartbeat, settings.message_size_max),
        _Abilities(pool, "key" in url.options),
    )


def pool_of(url: ServiceUrl) -> Pool | None:
    """Return the pool that a URL names, if it names one. Raises `ConfigurationError`."""
    name = url.options.get("pool")
    return None if name is None else Pool(name)


def wires_to(url: ServiceUrl, heartbeat: HeartbeatPolicy, body_size_max: int) -> Wires:
    """Make the wires to RabbitMQ: one connection, dialled again whenever it ends."""
    entry = AmqpSettings(
        vhost=url.options["vhost"],
        user=DEFAULT_USER if url.user is None else url.user,
        password=DEFAULT_USER if url.password is None else url.password,
        heartbeat_s=heartbeat_to_announce_s(heartbeat),
        body_size_max=body_size_max,
    )
    [address] = url.addresses
    return Wires(keep=[Endpoint(address, lambda: Amqp(entry), tls=url.tls)])


def _policy(
    url: ServiceUrl, settings: ClientSettings, heartbeat: HeartbeatPolicy, *, persistent: bool
) -> CallerPolicy:
    return CallerPolicy(
        slots=settings.slots,
        retry=settings.retry or RetryPolicy(),
        heartbeat=heartbeat,
        confirms=_one_of(url, "confirm", tuple(_CONFIRMS), "no") == "yes",
        direct_reply=_one_of(url, "reply", _REPLIES, "queue") == "direct",
        persistent=persistent,
    )


def _one_of(url: ServiceUrl, name: str, values: tuple[str, ...], default: str) -> str:
    value = url.options.get(name, default)
    if value not in values:
        raise ConfigurationError(
            f"the option {name!r} of the URL takes {' or '.join(values)}, not {value!r}"
        )
    return value
