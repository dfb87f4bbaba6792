"""Who a worker of a pool is: what its manager put into its environment.

Source: "Scalable async RPC", section "Worker protocol"; WORKER_AMQP_URL and WORKER_PREFETCH are
requite's additions to it.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple
from urllib.parse import quote

from requite.errors import ConfigurationError


class Place(NamedTuple):
    """Where a worker of a pool serves, as a URL, and how many requests it takes at a time."""

    url: str
    prefetch: int


_NEEDED = ("WORKER_AMQP_URL", "WORKER_POOL", "WORKER_KEY", "WORKER_ID")
_OPTIONS = {
    "pool": "WORKER_POOL",
    "key": "WORKER_KEY",
    "id": "WORKER_ID",
    "queue": "WORKER_REQUESTS_QUEUE",
    "activity": "WORKER_ACTIVITY_EXCHANGE",
}


def place_of(environ: Mapping[str, str]) -> Place:
    """Return the place of a worker. Raises `ConfigurationError` for what is missing or odd."""
    missing = [name for name in _NEEDED if name not in environ]
    if missing:
        raise ConfigurationError(
            f"a worker of a pool is started by its manager, which tells it who it is;"
            f" {', '.join(missing)} missing in the environment"
        )
    base = environ["WORKER_AMQP_URL"]
    options = {
        name: environ[variable] for name, variable in _OPTIONS.items() if variable in environ
    }
    query = "&".join(f"{name}={quote(value, safe='')}" for name, value in options.items())
    return Place(f"{base}{'&' if '?' in base else '?'}{query}", _prefetch(environ))


def _prefetch(environ: Mapping[str, str]) -> int:
    text = environ.get("WORKER_PREFETCH", "1")
    if not (text.isascii() and text.isdecimal() and int(text) > 0):
        raise ConfigurationError(f"WORKER_PREFETCH is {text!r}, and not a number of requests")
    return int(text)
