"""What a broker, client or worker needs in order to keep a journal, if it is to keep one."""

from __future__ import annotations

import os
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING

from requite.chronicle import ORIGIN_SIZE, Chronicle, Role

if TYPE_CHECKING:
    from requite.journal import Journal

Folder = str | PathLike[str]


def new_name() -> bytes:
    """Return a name that nobody else has, for a process's part in journals and call ids."""
    return os.urandom(ORIGIN_SIZE)


def journal_in(folder: Folder | None, role: Role, name: bytes) -> Journal | None:
    """Make a journal in `folder`, not yet begun; None where none is to be kept."""
    if folder is None:
        return None
    from requite.journal import Journal  # most processes keep none

    return Journal(Path(folder), role, name)


def chronicle_of(journal: Journal | None) -> Chronicle | None:
    """Return where an engine writes for a journal."""
    return None if journal is None else journal.chronicle
