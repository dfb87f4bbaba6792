"""How a Titanic keeps requests: where, for how long, and who has a copy."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from os import PathLike
from typing import TypeAlias

from requite.errors import ConfigurationError
from requite.protocols.titanic.policy import Replicate, TitanicPolicy
from requite.titanic.store import Store, StoreSettings, open_memory, open_store


@dataclass(frozen=True, slots=True)
class TitanicSettings:
    """How a Titanic keeps requests.

    - `directory`: the folder, which nobody else may use meanwhile. None: in memory, which is
      faster, and does not survive the process.
    - `policy`: times and limits.
    - `store`: how much disk, in which files.
    - `replica`: the URL of the broker at which another Titanic keeps a copy of everything; None: no
      copy. `sync`: acknowledge nothing before the copy has it.
    - `standby`: be that other one: keep what it is sent and run nothing, until it is promoted.
    """

    directory: str | PathLike[str] | None = None
    policy: TitanicPolicy = field(default_factory=TitanicPolicy)
    store: StoreSettings = field(default_factory=StoreSettings)
    replica: str | None = None
    sync: bool = False
    standby: bool = False

    def __post_init__(self) -> None:
        if self.sync and self.replica is None:
            raise ConfigurationError("`sync` says when a `replica` has to have everything: which?")

    @property
    def whole_policy(self) -> TitanicPolicy:
        """The policy, and what these settings make of it. Raises `ConfigurationError`."""
        mode = Replicate.SYNC if self.sync else Replicate.ASYNC
        mode = Replicate.NO if self.replica is None else mode
        return replace(self.policy, replicate=mode, standby=self.standby)

    def open(self) -> Store:
        """Read what is kept, and be the one who keeps it. Raises `StorageError`."""
        if self.directory is None:
            return open_memory(self.store)
        return open_store(self.directory, self.store)


KeepIn: TypeAlias = "TitanicSettings | str | PathLike[str]"


def settings_of(keep_in: KeepIn) -> TitanicSettings:
    """Return what was given as settings: a folder stands for the usual ones."""
    if isinstance(keep_in, TitanicSettings):
        return keep_in
    if not isinstance(keep_in, str | PathLike):
        raise ConfigurationError(
            f"requests are kept in a folder, or as TitanicSettings say, not in {keep_in!r}"
        )
    return TitanicSettings(keep_in)
