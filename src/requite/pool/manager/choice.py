"""Selects RabbitMQ, or a broker of MDP if `broker.url` is set."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from requite.errors import ConfigurationError
from requite.pool.config import PoolConfig
from requite.pool.engine import PoolParts
from requite.pool.manager.broker_carrier import BrokerCarrier
from requite.pool.manager.carrier import Carrier, State
from requite.pool.services import ServiceLoop
from requite.protocols.amqp.topology import Pool
from requite.protocols.majordomo.keyed import service_of


def carrier_of(
    config: PoolConfig, feed: Callable[[Any], None], on_state: Callable[[State], object]
) -> Carrier:
    """Make the carrier that the configuration names. Raises `ConfigurationError`."""
    if config.broker.url:
        return BrokerCarrier(config, feed, on_state)
    # Imports an HTTP client, which a manager at a broker does not need.
    from requite.pool.manager.rabbit_carrier import RabbitCarrier

    return RabbitCarrier(config, feed, on_state)


def parts_of(config: PoolConfig) -> PoolParts:
    """Return the engine parts for the carrier that the configuration names."""
    return PoolParts(queues=ServiceLoop) if config.broker.url else PoolParts()


def check_key(config: PoolConfig, key: str) -> None:
    """Raise `ConfigurationError` for a key that cannot have a group."""
    if config.broker.url:
        service_of(config.pool.name, key)
    else:
        Pool(config.pool.name).request_queue(key)
    if "\0" in key:
        raise ConfigurationError(
            f"{key!r}: a key cannot contain a NUL, since workers get it as an environment variable"
        )
