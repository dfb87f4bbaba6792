"""A model of RabbitMQ's exchanges: direct, fanout, alternate, and the default exchange.

Sources: AMQP 0.9.1, sections 3.1.3 and 3.1.4; RabbitMQ's documentation of alternate exchanges.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any, Final

DEFAULT: Final = ""
"""The name of the default exchange, which routes by queue name."""


class Exchanges:
    """The exchanges and bindings of a server."""

    def __init__(self) -> None:
        self._kinds: dict[str, str] = {}
        self._alternates: dict[str, str] = {}
        self._bindings: dict[str, dict[str, dict[str, None]]] = {}  # by exchange and routing key

    def __contains__(self, name: str) -> bool:
        return name in self._kinds

    def declare(self, name: str, kind: str, arguments: Mapping[str, Any] = {}) -> None:
        """Declare an exchange; do nothing if it exists."""
        self._kinds.setdefault(name, kind)
        if "alternate-exchange" in arguments:
            self._alternates[name] = arguments["alternate-exchange"]

    def alternate(self, name: str) -> str | None:
        """Return the alternate exchange: it gets the messages that `name` cannot route."""
        return self._alternates.get(name)

    def bind(self, exchange: str, queue: str, key: str) -> None:
        """Bind a queue to an exchange."""
        self._bindings.setdefault(exchange, {}).setdefault(key, {})[queue] = None

    def unbind(self, exchange: str, queue: str, key: str) -> None:
        """Remove a binding, if it exists."""
        self._bindings.get(exchange, {}).get(key, {}).pop(queue, None)

    def remove(self, queue: str) -> None:
        """Remove all bindings of a queue."""
        for table in self._bindings.values():
            for bound in table.values():
                bound.pop(queue, None)

    def bound(self, exchange: str, key: str) -> Collection[str]:
        """Return the queues that are bound with a routing key."""
        return self._bindings.get(exchange, {}).get(key, {})

    def all_bound(self, exchange: str) -> Collection[str]:
        """Return the queues that are bound with any routing key."""
        tables = self._bindings.get(exchange, {}).values()
        return dict.fromkeys(name for bound in tables for name in bound)

    def route(self, exchange: str, key: str) -> list[str]:
        """Return the queues that a message goes to, in the order of their bindings. For the default
        exchange, return the routing key even if no queue has that name."""
        if exchange == DEFAULT:
            return [key]
        if self._kinds[exchange] != "fanout":
            return [*self.bound(exchange, key)]
        return [*self.all_bound(exchange)]
