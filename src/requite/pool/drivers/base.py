"""The contract of drivers: what a pool's manager may ask of whoever runs its workers.

A driver labels what it makes with the pool and with the instance of the manager, and lists only
what bears both: two managers on one machine never touch each other's workers.
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
"""Returns the variables of a worker: from the key of its group, and the worker's own id."""

_LABEL: Final = re.compile(r"[a-z0-9]([a-z0-9-]{0,38}[a-z0-9])?")
_DIGEST_DIGITS: Final = 20


class DriverError(RequiteError):
    """Workers could not be listed, started or stopped. The message names the setting to look at."""


class Label(NamedTuple):
    """Whose workers these are: the pool, and the instance of its manager."""

    pool: str
    instance: str

    @property
    def prefix(self) -> str:
        """What the names of everything with this label begin with; neither part has a dot."""
        return f"{self.pool}.{self.instance}"


class Driver(Protocol):
    """Whoever runs workers. All of it may be repeated at any time, and raises `DriverError`."""

    workers_max: int
    """How many workers a group can have; 0: something else decides how many it has."""

    async def list(self) -> Mapping[str, RunningGroup]:
        """Return all groups with this label that have workers, by key, whoever has started them.

        Workers are those that run, or, where others start them again, that shall run. A group stays
        listed until the last of them has ended, as one that is stopping.
        """
        ...

    async def start(self, key: str, version: str = "", workers: int | None = None) -> None:
        """Have so many workers run for a key: start those that lack, stop those beyond. Without a
        number the driver starts some where there is none. What runs already keeps its version."""
        ...

    async def stop(self, key: str) -> None:
        """Have the workers of a key finish what they hold, and end. Return when they have, or where
        that is the service's affair, when it has been told; then `list` says how it goes."""
        ...

    async def close(self) -> None:
        """Let go of connections. Workers stay."""
        ...


class KeyedTurns:
    """One lock per key, for as long as somebody holds or awaits it."""

    def __init__(self) -> None:
        self._locks: Final[WeakValueDictionary[str, asyncio.Lock]] = WeakValueDictionary()

    def of(self, key: str) -> asyncio.Lock:
        """Return the lock of a key."""
        return self._locks.setdefault(key, asyncio.Lock())


def check_label(label: Label) -> Label:
    """Return a label that every service takes in its names; raise `ConfigurationError` else."""
    for setting, text in (("pool", label.pool), ("instance", label.instance)):
        if _LABEL.fullmatch(text) is None:
            raise ConfigurationError(
                f"{setting} = {text!r}: up to 40 of a-z, 0-9 and -, beginning and ending with a"
                " letter or digit, since workers are named after it"
            )
    return label


def check_environment(variables: Mapping[str, str]) -> Mapping[str, str]:
    """Return variables that a process can be given; raise `DriverError` for a NUL in one."""
    for name, value in variables.items():
        if "\0" in value:
            raise DriverError(f"{name} would hold a NUL, which no environment can")
    return variables


def check_workers(workers: int | None, workers_max: int) -> None:
    """Raise `DriverError` where a group cannot have so many workers."""
    if workers is not None and not 1 <= workers <= workers_max:
        raise DriverError(f"a group has 1 to {workers_max} workers here, not {workers}")


def variables_of(texts: Iterable[str]) -> dict[str, str]:
    """Read `driver.env`: texts NAME=VALUE. Raises `ConfigurationError`."""
    variables = {}
    for text in texts:
        name, sign, value = text.partition("=")
        if not (name and sign) or "\0" in text:
            raise ConfigurationError(f"driver.env: {text!r} is not NAME=VALUE")
        variables[name] = value
    return variables


def digest(key: str) -> str:
    """Return what stands for a key in names that cannot hold any text: 20 hex digits."""
    return hashlib.sha256(key.encode()).hexdigest()[:_DIGEST_DIGITS]


def fingerprint(settings: Mapping[str, Any]) -> str:
    """Return the version of workers that are configured so: 12 hex digits of all settings."""
    text = json.dumps(settings, sort_keys=True, default=str)
    return hashlib.sha256(text.encode()).hexdigest()[:12]
