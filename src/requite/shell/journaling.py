"""What a broker, client or worker needs in order to keep a journal, if it is to keep one."""

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
"""Where a journal is kept; and how, if not as usual."""


def new_name() -> bytes:
    """Return a name that nobody else has, for a process's part in journals and call ids."""
    drawn = entropy.source.randbytes(ORIGIN_SIZE)
    return bytes((drawn[0] & ~MADE_UP,)) + drawn[1:]


def journal_in(wanted: JournalOption | None, role: WriterRole, name: bytes) -> Journal | None:
    """Make the journal that is `wanted`, not yet begun; None where none is to be kept."""
    if wanted is None:
        return None
    from requite.journal import Journal  # most processes keep none

    folder, settings = wanted if isinstance(wanted, tuple) else (wanted, None)
    return Journal(Path(folder), role, name, settings=settings)


def chronicle_of(journal: Journal | None) -> Chronicle | None:
    """Return where an engine writes for a journal."""
    return None if journal is None else journal.chronicle
