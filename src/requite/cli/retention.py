"""Options for retention and shipping of this process's own journal log."""

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
        help="Delete the oldest files of this process's own log beyond a size (k, m, g, t) or an "
        "age (h, d, w): `1g`, `7d`, or both limits as `1g,7d`. [default: keep all]",
    ),
]
JournalShip = Annotated[
    str | None,
    Parameter(
        name="--journal-ship",
        metavar="TARGET",
        env_var="REQUITE_JOURNAL_SHIP",
        group=JOURNAL,
        help="Copy this process's own log to TARGET every 5 s and at the end: a folder, or a store "
        "such as `s3://bucket/journals`. Same as `requite journal ship`.",
    ),
]
_LIMIT: Final = re.compile(r"(\d+(?:\.\d+)?)([kmgthdw])", re.IGNORECASE)
_BYTES: Final = {"k": 1 << 10, "m": 1 << 20, "g": 1 << 30, "t": 1 << 40}
_SECONDS: Final = {"h": 3600, "d": 86_400, "w": 7 * 86_400}


def journal_option(
    journal: Path | None, retain: str | None, ship: str | None
) -> JournalOption | None:
    """Return the journal's settings, from the options. Raises `ConfigurationError` for options
    without --journal and for invalid limits."""
    if retain is None and ship is None:
        return journal
    if journal is None:
        option = "retain" if ship is None else "ship"
        raise ConfigurationError(f"--journal-{option} requires --journal DIR")
    from requite.journal import JournalSettings  # imported late: most processes have no journal

    size, age = (None, None) if retain is None else limits(retain)
    return journal, JournalSettings(retain_bytes=size, retain_s=age, ship_to=ship)


def limits(text: str) -> tuple[int | None, float | None]:
    """Parse a retention limit; return its bytes and seconds, None for no limit."""
    size, age = None, None
    for part in text.split(","):
        match = _LIMIT.fullmatch(part.strip())
        if match is None:
            raise ConfigurationError(
                f"--journal-retain: `{text}` is not a limit such as 1g, 7d or 1g,7d"
            )
        number, unit = float(match[1]), match[2].lower()
        if unit in _BYTES:
            size = int(number * _BYTES[unit])
        else:
            age = number * _SECONDS[unit]
    return size, age
