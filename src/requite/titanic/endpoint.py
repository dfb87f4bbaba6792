"""The broker of a Titanic: its address and dialect."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final

from requite.core.liveness import HeartbeatPolicy
from requite.errors import ConfigurationError
from requite.framing.handover import Handover
from requite.protocols.majordomo.dialects import by_version
from requite.protocols.majordomo.wire import Dialect
from requite.protocols.majordomo.wire_direct import DIRECT
from requite.shell.connections import Connections
from requite.speaks.mdp import connections_to
from requite.speaks.registry import read_endpoints
from requite.transport.address import InprocAddress

DIALECT_DEFAULT: Final = "0.3"


@dataclass(frozen=True, slots=True)
class BrokerEndpoint:
    """A broker: `name` for messages, `connections` to it, and the `dialect` of MDP to speak."""

    name: str
    connections: Connections
    dialect: Dialect
    heartbeat: HeartbeatPolicy = field(default_factory=HeartbeatPolicy)


def endpoint_at(
    url: str, dialect: str | None, size_max: int, heartbeat: HeartbeatPolicy
) -> BrokerEndpoint:
    """Return the endpoint of a URL. Raises `ConfigurationError` if it is not an MDP broker's."""
    endpoints = read_endpoints(url)
    if endpoints.protocol != "mdp":
        raise ConfigurationError(
            f"Titanic needs the URL of an MDP broker (mdp://), not {endpoints}"
        )
    broker = endpoints.only_dialled()
    if broker.service:
        raise ConfigurationError(
            f"remove the service {broker.service!r} from the URL: the services of a"
            " Titanic have fixed names"
        )
    spoken = by_version(dialect or broker.options.get("dialect", DIALECT_DEFAULT))
    return BrokerEndpoint(str(endpoints), connections_to(broker, size_max), spoken, heartbeat)


def endpoint_inside(address: InprocAddress) -> BrokerEndpoint:
    """Return the endpoint of a broker on the same event loop, which listens with `Handover`."""
    return BrokerEndpoint(str(address), Connections(Handover, dial_to=(address,)), DIRECT)
