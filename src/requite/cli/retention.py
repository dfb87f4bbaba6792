"""What becomes of a journal that is being written: how much is kept, where it is copied to."""

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
JournalShip = Annotated[
    str | None,
    Parameter(
        name="--journal-ship",
        metavar="TARGET",
        env_var="REQUITE_JOURNAL_SHIP",
        group=JOURNAL,
        help="Copy this process's own log in the journal to TARGET, a folder or a store such as "
        "`s3://bucket/journals`, every 5 s and at the end, as `requite journal ship` does.",
    ),
]
_LIMIT: Final = re.compile(r"(\d+(?:\.\d+)?)([kmgthdw])", re.IGNORECASE)
_BYTES: Final = {"k": 1 << 10, "m": 1 << 20, "g": 1 << 30, "t": 1 << 40}
_SECONDS: Final = {"h": 3600, "d": 86_400, "w": 7 * 86_400}


def journal_option(
    journal: Path | None, retain: str | None, ship: str | None
) -> JournalOption | None:
    """Return what the options come to. Raises `ConfigurationError` for what cannot be meant."""
    if retain is None and ship is None:
        return journal
    if journal is None:
        option = "retain says how much" if ship is None else "ship says to where a copy"
        raise ConfigurationError(f"--journal-{option} of a journal is kept: --journal?")
    from requite.journal import JournalSettings  # most processes keep none

    size, age = (None, None) if retain is None else limits(retain)
    return journal, JournalSettings(retain_bytes=size, retain_s=age, ship_to=ship)


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
