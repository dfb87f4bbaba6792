"""The options of a Titanic, for `requite titanic` and `requite broker`."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Final, Literal

from cyclopts import Group, Parameter

from requite.cli.options import POSITIVE, URLS
from requite.errors import ConfigurationError
from requite.protocols.titanic.policy import TitanicPolicy
from requite.titanic.settings import TitanicSettings
from requite.titanic.store import DISK_BYTES_LEAST, StoreSettings

IN_MEMORY: Final = "requests are stored in memory only and do not survive this process"
KEPT: Final = Group("Durable requests", sort_key=15)
DEFAULTS: Final = TitanicPolicy()
OWNER_REQUESTS_MAX: Final = DEFAULTS.owner_requests_max
_SIZE: Final = re.compile(r"(\d+)([kmgt]?)", re.IGNORECASE)
_UNITS: Final = {"": 1, "k": 1 << 10, "m": 1 << 20, "g": 1 << 30, "t": 1 << 40}

Folder = Annotated[
    Path | None,
    Parameter(metavar="DIR", group=KEPT, help="Store requests in DIR until they are answered."),
]
Memory = Annotated[
    bool,
    Parameter(
        group=KEPT,
        show_default=False,
        help="Store requests in memory only: faster, but they do not survive the process.",
    ),
]
Attempts = Annotated[
    int | None,
    Parameter(
        metavar="N",
        group=KEPT,
        validator=POSITIVE,
        help="Set a request aside after N failed attempts. [default: no limit]",
    ),
]
AttemptTimeout = Annotated[
    float,
    Parameter(
        metavar="SECONDS",
        group=KEPT,
        validator=POSITIVE,
        help="Time limit of each attempt at a durable request.",
    ),
]
Expire = Annotated[
    float | None,
    Parameter(
        metavar="SECONDS",
        group=KEPT,
        validator=POSITIVE,
        help="Drop a reply that no client has fetched for this time, or for this time since the "
        "start. [default: never]",
    ),
]
DiskMax = Annotated[
    str | None,
    Parameter(
        metavar="SIZE",
        group=KEPT,
        help="Disk space for durable requests, such as `10g`; further requests are refused. "
        "[default: the free space of the disk]",
    ),
]
KeyFile = Annotated[
    Path | None,
    Parameter(
        metavar="FILE",
        group=KEPT,
        help="Encrypt the stored requests with the first key in FILE, and read those of the other "
        "keys; one key per line, as `openssl rand -hex 32` makes it.",
    ),
]
OwnerRequests = Annotated[
    int,
    Parameter(
        metavar="N",
        group=KEPT,
        validator=POSITIVE,
        help="Durable requests that one user of the broker may have stored; further ones are "
        "refused.",
    ),
]
OwnerBytes = Annotated[
    str | None,
    Parameter(
        metavar="SIZE",
        group=KEPT,
        help="Bytes that the durable requests and replies of one user of the broker may take, such "
        "as `1g`; further requests are refused. Replies may take as much again. [default: a "
        "quarter of the disk space]",
    ),
]
Replica = Annotated[
    str | None,
    Parameter(
        metavar="URL",
        group=KEPT,
        validator=URLS,
        help="Replicate to the standby Titanic behind another broker.",
    ),
]
ReplicaMode = Annotated[
    Literal["async", "sync"],
    Parameter(
        group=KEPT,
        help="sync: acknowledge a request only when the replica has stored it, and refuse "
        "requests while the replica is unreachable.",
    ),
]
Standby = Annotated[
    bool,
    Parameter(
        group=KEPT,
        show_default=False,
        help="Be a replica: store what another Titanic sends, and run no requests until "
        "`requite titanic promote`.",
    ),
]


@dataclass(frozen=True, slots=True)
class Chosen:
    """The options of a Titanic. `prefix` is the start of their names: `--titanic-` for a
    broker."""

    folder: Path | None
    memory: bool
    attempts: int | None
    attempt_timeout: float
    expire: float | None
    disk_max: str | None
    replica: str | None
    replica_mode: Literal["async", "sync"]
    standby: bool
    owner_requests_max: int
    owner_bytes_max: str | None
    key_file: Path | None
    check_service: bool = True
    prefix: str = "--"

    def settings(self) -> TitanicSettings | None:
        """Return the settings; None without a store. Raises `ConfigurationError` for options that
        contradict each other."""
        if self.memory and self.folder is not None:
            raise ConfigurationError(
                "the options for a folder and for memory exclude each other: use one of them"
            )
        if not self.memory and self.folder is None:
            return None
        self._check_replica()
        policy = TitanicPolicy(
            attempts_max=self.attempts,
            attempt_timeout_s=self.attempt_timeout,
            expire_s=self.expire,
            check_service=self.check_service,
            owner_requests_max=self.owner_requests_max,
            owner_bytes_max=self._size("owner-bytes-max", self.owner_bytes_max),
        )
        return TitanicSettings(
            self.folder,
            policy,
            self._store_settings(),
            replica=self.replica,
            sync=self.replica_mode == "sync",
            standby=self.standby,
            key_file=self.key_file,
        )

    def _check_replica(self) -> None:
        """Raise `ConfigurationError` for replica options that contradict each other."""
        if self.replica_mode == "sync" and self.replica is None:
            raise ConfigurationError(
                f"{self.prefix}replica-mode sync requires a replica: "
                f"give {self.prefix}replica URL as well"
            )
        if self.standby and self.replica is not None:
            raise ConfigurationError(
                f"a standby cannot have a replica: give {self.prefix}standby or "
                f"{self.prefix}replica, not both"
            )

    def _store_settings(self) -> StoreSettings:
        """Parse `disk_max`. Raises `ConfigurationError`."""
        size = self._size("disk-max", self.disk_max)
        if size is None:
            return StoreSettings()
        if size < DISK_BYTES_LEAST:
            least = DISK_BYTES_LEAST // _UNITS["m"]
            raise ConfigurationError(
                f"{self.prefix}disk-max must be at least {least}m, not `{self.disk_max}`: less "
                "leaves no room for replies, or to free space"
            )
        return StoreSettings().bounded(size)

    def _size(self, option: str, given: str | None) -> int | None:
        """Parse a size in bytes. Raises `ConfigurationError`."""
        if given is None:
            return None
        match = _SIZE.fullmatch(given.strip())
        if match is None:
            name = f"{self.prefix}{option}"
            raise ConfigurationError(f"{name} is a size such as 512m or 10g, not `{given}`")
        return int(match[1]) * _UNITS[match[2].lower()]
