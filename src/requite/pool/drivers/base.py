"""The interface of drivers, which run the workers of a pool's manager.

A driver labels workers with the pool and the manager's instance, and lists only workers with both
labels: two managers on one machine never touch each other's workers.
"""

from __future__ import annotations

import asyncio
import hashlib
import json
import re
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final, NamedTuple, Protocol
from weakref import WeakValueDictionary

from requite.errors import ConfigurationError, RequiteError
from requite.pool.inputs import RunningGroup

Environment = Callable[[str, str], Mapping[str, str]]
"""Returns the environment variables of a worker, by the key of its group and the worker's id."""

_LABEL: Final = re.compile(r"[a-z0-9]([a-z0-9-]{0,38}[a-z0-9])?")
_DIGEST_DIGITS: Final = 20


class DriverError(RequiteError):
    """Workers could not be listed, started or stopped. The message names the setting to check."""


class Label(NamedTuple):
    """Owner of workers: the pool, and the instance of its manager."""

    pool: str
    instance: str

    @property
    def prefix(self) -> str:
        """Prefix of the names of everything with this label; neither part has a dot."""
        return f"{self.pool}.{self.instance}"


class Driver(Protocol):
    """Runs workers. All methods are idempotent, and raise `DriverError`."""

    workers_max: int
    """The maximum number of workers per group; 0: an autoscaler decides."""

    async def list(self) -> Mapping[str, RunningGroup]:
        """Return all groups with this label that have workers, by key, whatever started them.

        Counts running workers, or desired ones if the platform restarts workers. A stopped group
        stays listed, as `stopping`, until its last worker has exited.
        """
        ...

    async def start(self, key: str, version: str = "", workers: int | None = None) -> None:
        """Scale a key's group to `workers`: start missing ones, stop surplus ones. With None, start
        the driver's default number if none runs. Running workers keep their version."""
        ...

    async def stop(self, key: str) -> None:
        """Stop the workers of a key gracefully. Return when they have exited, or when the platform
        has accepted the stop; `list` then shows its progress."""
        ...

    async def close(self) -> None:
        """Close connections; workers keep running."""
        ...


class KeyedTurns:
    """One lock per key, which exists while a task holds or awaits it."""

    def __init__(self) -> None:
        self._locks: Final[WeakValueDictionary[str, asyncio.Lock]] = WeakValueDictionary()

    def of(self, key: str) -> asyncio.Lock:
        """Return the lock of a key."""
        return self._locks.setdefault(key, asyncio.Lock())


def check_label(label: Label) -> Label:
    """Return a label that is valid in names on every platform; else raise `ConfigurationError`."""
    for setting, text in (("pool", label.pool), ("instance", label.instance)):
        if _LABEL.fullmatch(text) is None:
            raise ConfigurationError(
                f"{setting} = {text!r}: use up to 40 characters of a-z, 0-9 and -, with a"
                " letter or digit at both ends, since names of workers contain it"
            )
    return label


def check_environment(variables: Mapping[str, str]) -> Mapping[str, str]:
    """Return valid environment variables; raise `DriverError` for a NUL in a value."""
    for name, value in variables.items():
        if "\0" in value:
            raise DriverError(
                f"{name} contains a NUL, which an environment variable cannot contain"
            )
    return variables


def check_workers(workers: int | None, workers_max: int) -> None:
    """Raise `DriverError` for a number of workers that the driver does not support."""
    if workers is not None and not 1 <= workers <= workers_max:
        raise DriverError(
            f"cannot scale a group to {workers} workers: the driver allows 1 to {workers_max}"
        )


def variables_of(texts: Iterable[str]) -> dict[str, str]:
    """Parse `driver.env`: strings NAME=VALUE. Raises `ConfigurationError`, which shows no value."""
    variables = {}
    for number, text in enumerate(texts, start=1):
        name, sign, value = text.partition("=")
        if not (name and sign) or "\0" in text:
            raise ConfigurationError(f"driver.env: item {number} is not NAME=VALUE")
        variables[name] = value
    return variables


def digest(key: str) -> str:
    """Return a digest of a key, for names with restricted characters: 20 hex digits."""
    return hashlib.sha256(key.encode()).hexdigest()[:_DIGEST_DIGITS]


def fingerprint(settings: Mapping[str, Any]) -> str:
    """Return a version of workers' settings: 12 hex digits of their digest."""
    text = json.dumps(settings, sort_keys=True, default=str)
    return hashlib.sha256(text.encode()).hexdigest()[:12]
