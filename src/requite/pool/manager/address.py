"""Where RabbitMQ is: `rabbitmq.url`, read as clients and workers read it, and told to aiormq.

The workers of a pool get the same URL. aiormq has other names for the options of TLS, and one that
has certificates not looked at, which is no option here.
"""

from __future__ import annotations

import ssl
from typing import Any, Final
from urllib.parse import quote

from yarl import URL

from requite.errors import ConfigurationError
from requite.pool.config import PoolConfig
from requite.transport.address import HostAddress
from requite.url import parse_url

_HEARTBEAT_S: Final = 10
_USER: Final = "guest"
_FOR_OTHERS: Final = ("queue", "pool", "key", "confirm", "reply", "id", "activity")


class Place:
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
        self._authority: Final = address.authority
        self._user: Final = url.user or _USER, url.password or _USER
        self._tls: Final = url.tls
        self.vhost: Final = url.options["vhost"]

    @property
    def context(self) -> ssl.SSLContext | None:
        """The context for TLS, where it is used. Raises `ConfigurationError`."""
        return None if self._tls is None else self._tls.dialling_context()

    @property
    def url(self) -> URL:
        """The URL as aiormq reads it."""
        scheme = "amqp" if self._tls is None else "amqps"
        user, password = (quote(each, safe="") for each in self._user)
        where = f"{user}:{password}@{self._authority}/{quote(self.vhost, safe='')}"
        return URL(f"{scheme}://{where}?heartbeat={_HEARTBEAT_S}", encoded=True)

    @property
    def options(self) -> dict[str, Any]:
        """What aiormq is told besides. Raises `ConfigurationError`."""
        if self._tls is None:
            return {}
        name = self._tls.server_name
        return {"context": self.context} | ({} if name is None else {"server_hostname": name})
