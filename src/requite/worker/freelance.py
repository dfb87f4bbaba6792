"""Freelance servers: workers that listen, and are known by the endpoint that clients dial."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Final

from requite.client.freelance import LINK_LIMITS, model_of
from requite.errors import ConfigurationError, LocalViolation
from requite.framing import BODY_FRAMES_MAX, Limits, SocketType, Zmtp
from requite.protocols.freelance.policy import ServerPolicy
from requite.protocols.freelance.server import FreelanceServer
from requite.reach import Reach
from requite.shell.keeping import Endpoint
from requite.shell.wires import Wires
from requite.transport.address import Address, HostAddress, parse_address
from requite.url import ServiceUrl
from requite.worker.handler import Service
from requite.worker.stacks import CAPACITY_DEFAULT, Part, WorkerSettings

_UNUSED: Final = {
    "heartbeat": "no heartbeats of its own: clients ask whether it lives",
    "dialect": "no dialects (MDP has)",
    "handler_timeout": "no leases (MDP 0.3 has): put asyncio.timeout into the handler",
    "hops": "no devices (SP has)",
}


class _Door:
    """One place to listen at, and the identity that is announced there: the server's public
    endpoint, in the very words in which clients dial it (10/FLP, "Request and Reply Routing")."""

    def __init__(self, address: Address, public: str | None, limits: Limits) -> None:
        self.address = address
        self._public = parse_address(public) if public is not None else address
        self._limits = limits
        self._identity = str(self._public).encode()
        self.framing()  # refuses an identity that is too long

    def bound(self, address: Address) -> None:
        """Learn the real port, where a free one was asked for."""
        public = self._public
        if isinstance(public, HostAddress) and not public.port and isinstance(address, HostAddress):
            public = replace(public, port=address.port)
        elif not isinstance(public, HostAddress):
            public = address  # a free name
        self._identity = str(public).encode()

    def framing(self) -> Zmtp:
        """Make the framing of a connection."""
        return Zmtp(SocketType.ROUTER, identity=self._identity, limits=self._limits)


def parts(reach: Reach, services: Sequence[Service], settings: WorkerSettings) -> list[Part]:
    """Make the one part. Raises `ConfigurationError`."""
    _check(reach, services, settings)
    [service] = services
    capacity = CAPACITY_DEFAULT if settings.capacity is None else settings.capacity
    policy = ServerPolicy(
        model=model_of(reach), capacity=capacity, reply_size_max=settings.message_size_max
    )
    engine = FreelanceServer(
        policy, service=service.name, instance=settings.name, chronicle=settings.chronicle
    )
    limits = Limits.for_bodies(settings.message_size_max)
    doors = [door for url in reach.binds for door in _doors(url, limits)]
    wires = Wires(
        listen=[Endpoint(door.address, door.framing) for door in doors], limits=LINK_LIMITS
    )

    def bound(addresses: Sequence[Address]) -> None:
        for door, address in zip(doors, addresses, strict=True):
            door.bound(address)

    threads = settings.threads or capacity
    return [
        Part(service, engine, wires, capacity, threads, BODY_FRAMES_MAX, holds=True, bound=bound)
    ]


def _doors(url: ServiceUrl, limits: Limits) -> list[_Door]:
    try:
        return [_Door(address, url.options.get("public"), limits) for address in url.addresses]
    except LocalViolation as violation:
        raise ConfigurationError(f"the server's endpoint is its identity: {violation}") from None


def _check(reach: Reach, services: Sequence[Service], settings: WorkerSettings) -> None:
    if reach.dials:
        raise ConfigurationError(
            "a Freelance server listens: give its URL as `bind` (its clients dial it)"
        )
    if len(services) > 1:
        raise ConfigurationError(
            "Freelance names no services, so a server has one: give each of the others a server"
            " and an address of its own (MDP has named services)"
        )
    for name, has in _UNUSED.items():
        if getattr(settings, name) is not None:
            raise ConfigurationError(f"Freelance has {has}; leave `{name}` out")
    if settings.capacity is not None and not isinstance(settings.capacity, int):
        raise ConfigurationError(f"capacity is a whole number, not {settings.capacity!r}")
