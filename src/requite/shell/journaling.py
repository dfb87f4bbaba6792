"""Open the optional journal of a broker, client or worker."""

from __future__ import annotations

from collections.abc import Callable
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, TypeAlias

from requite.chronicle import MADE_UP, ORIGIN_SIZE, Chronicle, Kind, WriterRole
from requite.core.recording import DecisionRecorder
from requite.shell import clock, entropy

if TYPE_CHECKING:
    from requite.journal import Journal, JournalSettings

Folder = str | PathLike[str]
JournalOption: TypeAlias = "Folder | tuple[Folder, JournalSettings]"
"""The folder of a journal, or a pair of the folder and its settings."""


def new_name() -> bytes:
    """Return a random, unique name for a process in journals and call ids."""
    drawn = entropy.source.randbytes(ORIGIN_SIZE)
    return bytes((drawn[0] & ~MADE_UP,)) + drawn[1:]


def journal_in(wanted: JournalOption | None, role: WriterRole, name: bytes) -> Journal | None:
    """Make the journal that is `wanted`, not yet started, or return None."""
    if wanted is None:
        return None
    from requite.journal import Journal  # most processes have none

    folder, settings = wanted if isinstance(wanted, tuple) else (wanted, None)
    return Journal(Path(folder), role, name, settings=settings)


def access_record(journal: Journal | None) -> Callable[[Kind, str, str], None]:
    """Return what journals the decisions of a guard (`requite.access.guard`), if there is a
    journal."""
    if journal is None:
        return _forget
    recorder = DecisionRecorder(journal.chronicle)

    def record(kind: Kind, principal: str, reason: str) -> None:
        verb = "rights" if kind is Kind.RIGHTS else "connect"
        recorder.record(kind, principal, verb, b"", clock.now(), reason)

    return record


def _forget(_kind: Kind, _principal: str, _reason: str) -> None:
    """Keep no record."""


def chronicle_of(journal: Journal | None) -> Chronicle | None:
    """Return the journal's chronicle, for its engine, or None."""
    return None if journal is None else journal.chronicle
