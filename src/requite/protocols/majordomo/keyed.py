"""The services of pools of keyed workers: `POOL/KEY`, one per key.

Keys are arbitrary UTF-8, percent-encoded in the name (RFC 3986, section 2.1), as in the names of
RabbitMQ's queues, so that they have no slash, literal percent sign or control character. Each key
has exactly one name, and other names that begin with `POOL/` belong to no key.
"""

from __future__ import annotations

from typing import Final
from urllib.parse import quote, unquote

from requite.errors import ConfigurationError
from requite.protocols.majordomo.wire import SERVICE_NAME_SIZE_MAX

_MANAGERS: Final = "!managers"  # no encoded key has an exclamation mark


def prefix_of(pool: str) -> str:
    """Return the prefix of all service names of a pool."""
    if not pool:
        raise ConfigurationError("a pool needs a name (pool=NAME)")
    return f"{_encoded(pool)}/"


def managers_of(pool: str) -> str:
    """Return the service for which the managers of a pool register as workers."""
    return f"{prefix_of(pool)}{_MANAGERS}"


def managers_for(service: str) -> str | None:
    """Return the managers' service of a service's pool; None for a service of no pool."""
    pool, slash, _ = service.partition("/")
    return f"{pool}/{_MANAGERS}" if pool and slash else None


def service_of(pool: str, key: str) -> str:
    """Return the name of a group's service. Raises `ConfigurationError` for a key too long."""
    name = f"{prefix_of(pool)}{_encoded(key)}"
    if len(name) > SERVICE_NAME_SIZE_MAX:
        raise ConfigurationError(
            f"the service name {name[:30]!r}..., which has the percent-encoded key"
            f" {key[:20]!r}... (key=...), has {len(name)} bytes; the maximum is"
            f" {SERVICE_NAME_SIZE_MAX}"
        )
    return name


def key_of(pool: str, service: str) -> str | None:
    """Return the key of a group's service by its name; None for any other service."""
    key = meant_by(pool, service)
    if key is None or f"{prefix_of(pool)}{quote(key, safe='')}" != service:
        return None
    return key


def meant_by(pool: str, service: str) -> str | None:
    """Return the key of a service name, even of one that is not encoded canonically; None if it is
    of another pool or cannot be decoded."""
    prefix = prefix_of(pool)
    if not service.startswith(prefix):
        return None
    try:
        return unquote(service[len(prefix) :], errors="strict")
    except UnicodeDecodeError:
        return None


def _encoded(text: str) -> str:
    try:
        return quote(text, safe="")
    except UnicodeEncodeError:
        raise ConfigurationError(f"{text!r} cannot be encoded as UTF-8") from None
