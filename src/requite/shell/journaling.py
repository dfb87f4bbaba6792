"""Open the optional journal of a broker, client or worker."""

from __future__ import annotations

from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, TypeAlias

from requite.chronicle import MADE_UP, ORIGIN_SIZE, Chronicle, WriterRole
from requite.shell import entropy

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


def chronicle_of(journal: Journal | None) -> Chronicle | None:
    """Return the journal's chronicle, for its engine, or None."""
    return None if journal is None else journal.chronicle
