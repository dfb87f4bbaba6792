"""What the command prints, and where: results on stdout, everything else on stderr.

A verb with `--json` ends with exactly one object, on the last line of stdout. Consoles of rich are
made when something needs them: loading rich takes longer than most of what is printed plainly.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final

from requite.shell.warnings import printable

if TYPE_CHECKING:
    from rich.console import Console

__all__ = [
    "complain",
    "printable",
    "printable_lines",
    "say",
    "say_json",
    "stderr_console",
    "stdout_console",
]

_PIPE_WIDTH: Final = 160


def say(text: str) -> None:
    """Print a line of the result at once, even into a pipe."""
    print(text, flush=True)


def printable_lines(text: str) -> str:
    """Escape what is not printable in each line of a text."""
    return "\n".join(map(printable, text.split("\n")))


def counted(n: int, noun: str) -> str:
    """Return so many of something."""
    return f"{n:,} {noun}" if n == 1 else f"{n:,} {noun}s"


def complain(text: str) -> None:
    """Print on stderr what went wrong, as one paragraph that names the command."""
    print(f"requite: {printable_lines(text)}", file=sys.stderr, flush=True)


def say_json(record: Mapping[str, Any]) -> None:
    """Print a result for machines: one object on one line."""
    say(json.dumps(record, ensure_ascii=False))


def stdout_console() -> Console:
    """Return a console for tables on stdout. In a pipe no table is cut to 80 columns."""
    from rich.console import Console

    width = None if sys.stdout.isatty() else _PIPE_WIDTH
    return Console(highlight=False, width=width)


def stderr_console() -> Console:
    """Return a console for progress on stderr, which leaves stdout to the result."""
    from rich.console import Console

    return Console(stderr=True, highlight=False)
