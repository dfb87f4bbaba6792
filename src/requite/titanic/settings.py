"""Settings of a Titanic: store, time limits and replication."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from os import PathLike
from typing import TypeAlias

from requite.errors import ConfigurationError
from requite.framing.web_hosts import canonical, is_loopback
from requite.protocols.titanic.policy import Replicate, TitanicPolicy
from requite.speaks.registry import read_endpoints
from requite.storage import LogReader
from requite.titanic.store import Store, StoreSettings, open_memory, open_store
from requite.transport.address import HostAddress


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
    - `key_file`: a file with the keys to encrypt the folder with, one per line (64 hex digits); new
      records get the first key. It must be readable by its user only. A replica gets plain records:
      its URL must use TLS or stay on this machine.
    """

    directory: str | PathLike[str] | None = None
    policy: TitanicPolicy = field(default_factory=TitanicPolicy)
    store: StoreSettings = field(default_factory=StoreSettings)
    replica: str | None = field(default=None, repr=False)  # it may have a password
    sync: bool = False
    standby: bool = False
    key_file: str | PathLike[str] | None = None

    def __post_init__(self) -> None:
        if self.key_file is not None and self.directory is None:
            raise ConfigurationError("`key_file` requires a folder: memory is not encrypted")
        if self.key_file is not None and self.replica is not None:
            _require_private_link(self.replica)
        if self.sync and self.replica is None:
            raise ConfigurationError("`sync` requires `replica`, the URL of the replica's broker")

    @property
    def whole_policy(self) -> TitanicPolicy:
        """The policy with these settings applied. Raises `ConfigurationError`."""
        mode = Replicate.SYNC if self.sync else Replicate.ASYNC
        mode = Replicate.NO if self.replica is None else mode
        return replace(self.policy, replicate=mode, standby=self.standby)

    @property
    def is_kept(self) -> bool:
        """Whether the store survives the process, and can be reopened after a failure."""
        return self.directory is not None

    def log_ids(self) -> set[bytes]:
        """Return the ids of all logs in the folder: one, unless files were copied into it."""
        assert self.directory is not None
        return {segment.log_id for segment in LogReader(self.directory).segments()}

    def open(self, log_id: bytes | None = None) -> Store:
        """Open the store; with `log_id` only one with this log. Raises `StorageError`."""
        if self.directory is None:
            return open_memory(self.store)
        return open_store(self.directory, self.store, log_id=log_id, key_file=self.key_file)


def _require_private_link(replica: str) -> None:
    """Raise `ConfigurationError` if records would cross a network unencrypted."""
    for address in read_endpoints(replica).only_dialled().addresses:
        if isinstance(address, HostAddress) and not (
            address.is_secure or is_loopback(canonical(address.host) or "")
        ):
            raise ConfigurationError(
                f"a Titanic with a key file cannot send its records to {address}, because they"
                " would cross the network unencrypted: use TLS, or a tunnel on this machine"
            )


KeepIn: TypeAlias = "TitanicSettings | str | PathLike[str]"


def settings_of(keep_in: KeepIn) -> TitanicSettings:
    """Return settings; for a folder, the defaults with that folder."""
    if isinstance(keep_in, TitanicSettings):
        return keep_in
    if not isinstance(keep_in, str | PathLike):
        raise ConfigurationError(f"keep_in must be a folder or TitanicSettings, not {keep_in!r}")
    return TitanicSettings(keep_in)
