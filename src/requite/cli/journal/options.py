"""Options that the verbs of a journal share, and how they end."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated

from cyclopts import Parameter
from rich.filesize import decimal

from requite.cli.exit_codes import ExitCode
from requite.cli.output import complain

Directory = Annotated[
    str,
    Parameter(
        name="DIR",
        help="A journal, or one of the logs in it: a folder, or such as `s3://BUCKET/journals`.",
    ),
]


def end(flaws: Mapping[str, int]) -> ExitCode:
    """Say what could not be decoded, by reason; return the exit code that tells of it."""
    if not flaws:
        return ExitCode.OK
    reasons = ", ".join(
        reason if count == 1 else f"{reason} ({count:,} times)" for reason, count in flaws.items()
    )
    complain(f"not everything could be decoded: {reasons}; whatever else is there has been read")
    return ExitCode.FAILED


def size_of(count: int) -> str:
    """Return a number of bytes as people write it: 999 B, 1.2 kB, 3.4 MB."""
    return f"{count} B" if count < 1000 else decimal(count)
