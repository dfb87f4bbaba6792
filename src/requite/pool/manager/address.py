"""Connection settings of `rabbitmq.url`, parsed as clients and workers parse it.

Workers of a pool use the same URL unless `workers.amqp_url` is set.
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
_BODY_SIZE_MAX: Final = 512 << 20  # the largest max_message_size of RabbitMQ
_USER: Final = "guest"
_FOR_OTHERS: Final = ("queue", "pool", "key", "confirm", "reply", "id", "activity")


class ConnectionSettings:
    """Settings of a connection to RabbitMQ; `ConfigurationError` names an invalid one."""

    def __init__(self, config: PoolConfig) -> None:
        try:
            url = parse_url(config.rabbitmq.url)
        except ConfigurationError as error:
            raise ConfigurationError(f"rabbitmq.url: {error}") from None
        if url.protocol != "amqp":
            raise ConfigurationError("rabbitmq.url: use an amqp:// or amqps:// URL")
        for name in _FOR_OTHERS:
            if name in url.options:
                raise ConfigurationError(
                    f"rabbitmq.url: remove the option {name!r}; managers do not support it"
                )
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
        """The TLS context, or None without TLS. Raises `ConfigurationError`."""
        return None if self.tls is None else self.tls.dialling_context()
