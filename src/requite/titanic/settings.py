"""Settings of a Titanic: store, time limits and replication."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from os import PathLike
from typing import TypeAlias

from requite.errors import ConfigurationError
from requite.protocols.titanic.policy import Replicate, TitanicPolicy
from requite.titanic.store import Store, StoreSettings, open_memory, open_store


@dataclass(frozen=True, slots=True)
class TitanicSettings:
    """Settings of a Titanic.

    - `directory`: the folder, for exclusive use. None: in memory, which is faster and does not
      survive the process.
    - `policy`: times and limits.
    - `store`: disk usage and files.
    - `replica`: the URL of the broker of another Titanic that stores a copy of everything; None: no
      copy. `sync`: acknowledge nothing before the replica has stored it.
    - `standby`: be a replica: store what is sent, and dispatch nothing until promoted.
    """

    directory: str | PathLike[str] | None = None
    policy: TitanicPolicy = field(default_factory=TitanicPolicy)
    store: StoreSettings = field(default_factory=StoreSettings)
    replica: str | None = field(default=None, repr=False)  # it may have a password
    sync: bool = False
    standby: bool = False

    def __post_init__(self) -> None:
        if self.sync and self.replica is None:
            raise ConfigurationError("`sync` requires `replica`, the URL of the replica's broker")

    @property
    def whole_policy(self) -> TitanicPolicy:
        """The policy with these settings applied. Raises `ConfigurationError`."""
        mode = Replicate.SYNC if self.sync else Replicate.ASYNC
        mode = Replicate.NO if self.replica is None else mode
        return replace(self.policy, replicate=mode, standby=self.standby)

    def open(self, log_id: bytes | None = None) -> Store:
        """Open the store; with `log_id` only one with this log. Raises `StorageError`."""
        if self.directory is None:
            return open_memory(self.store)
        return open_store(self.directory, self.store, log_id=log_id)


KeepIn: TypeAlias = "TitanicSettings | str | PathLike[str]"


def settings_of(keep_in: KeepIn) -> TitanicSettings:
    """Return settings; for a folder, the defaults with that folder."""
    if isinstance(keep_in, TitanicSettings):
        return keep_in
    if not isinstance(keep_in, str | PathLike):
        raise ConfigurationError(f"keep_in must be a folder or TitanicSettings, not {keep_in!r}")
    return TitanicSettings(keep_in)
