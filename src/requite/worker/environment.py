"""Read a pool worker's URL and prefetch from the environment that its manager sets.

Source: "Scalable async RPC", section "Worker protocol"; WORKER_AMQP_URL and WORKER_PREFETCH are
requite's additions to it. WORKER_BROKER_URL replaces WORKER_AMQP_URL if the pool is behind an MDP
broker.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple
from urllib.parse import quote

from requite.errors import ConfigurationError


class WorkerAddress(NamedTuple):
    """The URL at which a pool worker serves, and how many requests it takes at a time."""

    url: str
    prefetch: int


_AMQP = "WORKER_AMQP_URL"
_BROKER = "WORKER_BROKER_URL"
_NEEDED = ("WORKER_POOL", "WORKER_KEY", "WORKER_ID")
_KEYED = {"pool": "WORKER_POOL", "key": "WORKER_KEY"}
_OPTIONS = {
    "pool": "WORKER_POOL",
    "key": "WORKER_KEY",
    "id": "WORKER_ID",
    "queue": "WORKER_REQUESTS_QUEUE",
    "activity": "WORKER_ACTIVITY_EXCHANGE",
}


def place_of(environ: Mapping[str, str]) -> WorkerAddress:
    """Return a pool worker's address. Raises `ConfigurationError` for a missing or bad variable."""
    is_brokered = _BROKER in environ
    if is_brokered and _AMQP in environ:
        raise ConfigurationError(
            f"{_BROKER} and {_AMQP} are both set; a worker can serve only one of them"
        )
    where = _BROKER if is_brokered else _AMQP
    missing = [name for name in (where, *_NEEDED) if name not in environ]
    if missing:
        raise ConfigurationError(
            f"the environment lacks {', '.join(missing)}, which a pool's manager sets when it"
            " starts a worker"
        )
    known = _KEYED if is_brokered else _OPTIONS
    options = {name: environ[variable] for name, variable in known.items() if variable in environ}
    return WorkerAddress(_with_options(environ[where], options), _prefetch(environ))


def _with_options(base: str, options: Mapping[str, str]) -> str:
    query = "&".join(f"{name}={quote(value, safe='')}" for name, value in options.items())
    return f"{base}{'&' if '?' in base else '?'}{query}"


def _prefetch(environ: Mapping[str, str]) -> int:
    text = environ.get("WORKER_PREFETCH", "1")
    if not (text.isascii() and text.isdecimal() and int(text) > 0):
        raise ConfigurationError(
            f"WORKER_PREFETCH must be a whole number of at least 1, not {text!r}"
        )
    return int(text)
