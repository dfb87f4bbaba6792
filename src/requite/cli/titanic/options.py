"""What may be set on a Titanic from the command line, beside a broker and inside of one."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Final, Literal

from cyclopts import Group, Parameter, validators

from requite.errors import ConfigurationError
from requite.protocols.titanic.policy import TitanicPolicy
from requite.titanic.settings import TitanicSettings
from requite.titanic.store import DISK_BYTES_LEAST, StoreSettings

IN_MEMORY: Final = "kept in memory alone: requests do not survive this process"
KEPT: Final = Group("Kept requests", sort_key=15)
DEFAULTS: Final = TitanicPolicy()
_POSITIVE: Final = validators.Number(gt=0)
_SIZE: Final = re.compile(r"(\d+)([kmgt]?)", re.IGNORECASE)
_UNITS: Final = {"": 1, "k": 1 << 10, "m": 1 << 20, "g": 1 << 30, "t": 1 << 40}

Folder = Annotated[
    Path | None,
    Parameter(metavar="DIR", group=KEPT, help="Keep requests in DIR until they are answered."),
]
Memory = Annotated[
    bool,
    Parameter(
        group=KEPT,
        show_default=False,
        help="Keep requests in memory instead: faster, and they do not survive the process.",
    ),
]
Attempts = Annotated[
    int | None,
    Parameter(
        metavar="N",
        group=KEPT,
        validator=_POSITIVE,
        help="Put a request aside after N attempts that failed. [default: try for ever]",
    ),
]
AttemptTimeout = Annotated[
    float,
    Parameter(
        metavar="SECONDS",
        group=KEPT,
        validator=_POSITIVE,
        help="How long one attempt at a kept request may take.",
    ),
]
Expire = Annotated[
    float | None,
    Parameter(
        metavar="SECONDS",
        group=KEPT,
        validator=_POSITIVE,
        help="Drop a reply that nobody has collected for so long. [default: never]",
    ),
]
DiskMax = Annotated[
    str | None,
    Parameter(
        metavar="SIZE",
        group=KEPT,
        help="How much kept requests may take on the disk, such as `10g`; more are refused. "
        "[default: what the disk has]",
    ),
]
Replica = Annotated[
    str | None,
    Parameter(
        metavar="URL",
        group=KEPT,
        help="Copy everything to the Titanic behind another broker, which has to be a standby.",
    ),
]
ReplicaMode = Annotated[
    Literal["async", "sync"],
    Parameter(
        group=KEPT,
        help="sync: acknowledge a request only when the replica has it as well, and refuse it "
        "while the replica is away.",
    ),
]
Standby = Annotated[
    bool,
    Parameter(
        group=KEPT,
        show_default=False,
        help="Be a replica: keep what another Titanic sends, and run nothing, until "
        "`requite titanic promote`.",
    ),
]


@dataclass(frozen=True, slots=True)
class Chosen:
    """The options as they were given. `prefix` is what their names begin with: `--titanic-` at a
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
    check_service: bool = True
    prefix: str = "--"

    def settings(self) -> TitanicSettings | None:
        """Return what they come to; None where nothing is to be kept. Raises `ConfigurationError`
        for what cannot be meant."""
        if self.memory and self.folder is not None:
            raise ConfigurationError("requests are kept in a folder or in memory: give one of them")
        if not self.memory and self.folder is None:
            return None
        self._check_replica()
        policy = TitanicPolicy(
            attempts_max=self.attempts,
            attempt_timeout_s=self.attempt_timeout,
            expire_s=self.expire,
            check_service=self.check_service,
        )
        return TitanicSettings(
            self.folder,
            policy,
            self._store_settings(),
            replica=self.replica,
            sync=self.replica_mode == "sync",
            standby=self.standby,
        )

    def _check_replica(self) -> None:
        """Refuse what a replica cannot be, or have."""
        if self.replica_mode == "sync" and self.replica is None:
            raise ConfigurationError(
                f"{self.prefix}replica-mode sync says when a replica has to have everything: "
                f"give {self.prefix}replica URL as well"
            )
        if self.standby and self.replica is not None:
            raise ConfigurationError(
                f"a standby has no replica of its own: give {self.prefix}standby or "
                f"{self.prefix}replica, not both"
            )

    def _store_settings(self) -> StoreSettings:
        """Read the bound."""
        if self.disk_max is None:
            return StoreSettings()
        name = f"{self.prefix}disk-max"
        match = _SIZE.fullmatch(self.disk_max.strip())
        if match is None:
            raise ConfigurationError(f"{name} is a size such as 512m or 10g, not `{self.disk_max}`")
        size = int(match[1]) * _UNITS[match[2].lower()]
        if size < DISK_BYTES_LEAST:
            least = DISK_BYTES_LEAST // _UNITS["m"]
            raise ConfigurationError(
                f"{name} is {least}m at least, not `{self.disk_max}`: with less there would be no "
                "room for replies, and none to make room"
            )
        return StoreSettings().bounded(size)
