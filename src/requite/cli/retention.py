"""`--journal-retain`: how much of a journal that is being written is kept."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final

from cyclopts import Parameter

from requite.cli.options import JOURNAL
from requite.errors import ConfigurationError

if TYPE_CHECKING:
    from requite.shell.journaling import JournalOption

JournalRetain = Annotated[
    str | None,
    Parameter(
        name="--journal-retain",
        metavar="SIZE|AGE",
        env_var="REQUITE_JOURNAL_RETAIN",
        group=JOURNAL,
        help="How much of this process's own log in the journal is kept, such as `1g`, `7d` or, "
        "for whichever is less, `1g,7d`: k, m, g or t of bytes; h, d or w of time. Its oldest "
        "files beyond that are removed. Without it, all is kept.",
    ),
]
_LIMIT: Final = re.compile(r"(\d+(?:\.\d+)?)([kmgthdw])", re.IGNORECASE)
_BYTES: Final = {"k": 1 << 10, "m": 1 << 20, "g": 1 << 30, "t": 1 << 40}
_SECONDS: Final = {"h": 3600, "d": 86_400, "w": 7 * 86_400}


def journal_option(journal: Path | None, retain: str | None) -> JournalOption | None:
    """Return what the options come to. Raises `ConfigurationError` for what cannot be meant."""
    if retain is None:
        return journal
    if journal is None:
        raise ConfigurationError("--journal-retain says how much of a journal is kept: --journal?")
    from requite.journal import JournalSettings  # most processes keep none

    size, age = limits(retain)
    return journal, JournalSettings(retain_bytes=size, retain_s=age)


def limits(text: str) -> tuple[int | None, float | None]:
    """Return how many bytes, and how many seconds, are to be kept; None: any."""
    size, age = None, None
    for part in text.split(","):
        match = _LIMIT.fullmatch(part.strip())
        if match is None:
            raise ConfigurationError(
                f"--journal-retain takes such as 1g, 7d or 1g,7d; not `{text}`"
            )
        number, unit = float(match[1]), match[2].lower()
        if unit in _BYTES:
            size = int(number * _BYTES[unit])
        else:
            age = number * _SECONDS[unit]
    return size, age
