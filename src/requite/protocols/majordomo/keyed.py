"""The services of pools of keyed workers: `POOL/KEY`, one per key.

Keys are arbitrary UTF-8. They stand in the name percent-encoded (RFC 3986, section 2.1), as in the
names of RabbitMQ's queues: without a slash, a percent sign that means itself, or a control
character. So each key has one name, and other names that begin with `POOL/` are no key's.
"""

from __future__ import annotations

from typing import Final
from urllib.parse import quote, unquote

from requite.errors import ConfigurationError
from requite.protocols.majordomo.wire import SERVICE_NAME_SIZE_MAX

_MANAGERS: Final = "!managers"  # no encoded key has an exclamation mark


def prefix_of(pool: str) -> str:
    """Return what the names of all services of a pool begin with."""
    if not pool:
        raise ConfigurationError("a pool needs a name (pool=NAME)")
    return f"{_encoded(pool)}/"


def managers_of(pool: str) -> str:
    """Return the service as whose workers the managers of a pool register, first come first."""
    return f"{prefix_of(pool)}{_MANAGERS}"


def managers_for(service: str) -> str | None:
    """Return the service of the managers of the pool that a service belongs to, if it does."""
    pool, slash, _ = service.partition("/")
    return f"{pool}/{_MANAGERS}" if pool and slash else None


def service_of(pool: str, key: str) -> str:
    """Return the name of a group's service. Raises `ConfigurationError` for a key too long."""
    name = f"{prefix_of(pool)}{_encoded(key)}"
    if len(name) > SERVICE_NAME_SIZE_MAX:
        raise ConfigurationError(
            f"the key {key[:20]!r}... (key=...), percent-encoded in {name[:30]!r}..., makes"
            f" {len(name)} bytes; the name of a service takes {SERVICE_NAME_SIZE_MAX}"
        )
    return name


def key_of(pool: str, service: str) -> str | None:
    """Return the key of a group's service by its name; None for any other service."""
    key = meant_by(pool, service)
    if key is None or f"{prefix_of(pool)}{quote(key, safe='')}" != service:
        return None
    return key


def meant_by(pool: str, service: str) -> str | None:
    """Return the key that is meant by a name of the pool, also one that is not encoded as it should
    be; None where that cannot be told."""
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
        raise ConfigurationError(f"{text!r} is not text that UTF-8 can carry") from None
