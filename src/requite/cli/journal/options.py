"""Options and exit codes that the verbs of `requite journal` share."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated

from cyclopts import Parameter

from requite.cli.exit_codes import ExitCode
from requite.cli.output import complain

Directory = Annotated[
    str,
    Parameter(
        name="DIR",
        help="A journal, or one of its logs: a folder, or a store such as `s3://BUCKET/journals`.",
    ),
]


def end(flaws: Mapping[str, int]) -> ExitCode:
    """Print why data could not be decoded, by reason; return the exit code."""
    if not flaws:
        return ExitCode.OK
    reasons = ", ".join(
        reason if count == 1 else f"{reason} ({count:,} times)" for reason, count in flaws.items()
    )
    complain(f"some data could not be decoded: {reasons}; all other events were read")
    return ExitCode.FAILED
