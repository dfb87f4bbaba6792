"""Where RabbitMQ is: `rabbitmq.url`, read as clients and workers read it.

The workers of a pool get the same URL.
"""

from __future__ import annotations

import ssl
from typing import Final

from requite.errors import ConfigurationError
from requite.framing.amqp import AmqpSettings
from requite.pool.config import PoolConfig
from requite.speaks.registry import parse_url
from requite.transport.address import HostAddress

_HEARTBEAT_S: Final = 10
_CHANNELS: Final = 64
_BODY_SIZE_MAX: Final = 512 << 20  # no RabbitMQ takes more (max_message_size)
_USER: Final = "guest"
_FOR_OTHERS: Final = ("queue", "pool", "key", "confirm", "reply", "id", "activity")


class ConnectionSettings:
    """The place of a pool's RabbitMQ. Raises `ConfigurationError`, which names the setting."""

    def __init__(self, config: PoolConfig) -> None:
        try:
            url = parse_url(config.rabbitmq.url)
        except ConfigurationError as error:
            raise ConfigurationError(f"rabbitmq.url: {error}") from None
        if url.protocol != "amqp":
            raise ConfigurationError("rabbitmq.url: it takes amqp:// or amqps://")
        for name in _FOR_OTHERS:
            if name in url.options:
                raise ConfigurationError(f"rabbitmq.url: the option {name!r} is not for a manager")
        [address] = url.addresses
        assert isinstance(address, HostAddress)
        self.address: Final = address
        self.tls: Final = url.tls
        self.vhost: Final = url.options["vhost"]
        self.amqp: Final = AmqpSettings(
            vhost=self.vhost,
            user=url.user or _USER,
            password=url.password or _USER,
            heartbeat_s=_HEARTBEAT_S,
            body_size_max=_BODY_SIZE_MAX,
            channels=_CHANNELS,
        )

    @property
    def context(self) -> ssl.SSLContext | None:
        """The context for TLS, where it is used. Raises `ConfigurationError`."""
        return None if self.tls is None else self.tls.dialling_context()
