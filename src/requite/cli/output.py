"""Print results on stdout, and everything else on stderr.

A verb with `--json` prints exactly one object on the last line of stdout. rich is imported on first
use, since the import is slow.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final

from requite.shell.warnings import printable
from requite.speaks.url import redact_text

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
    """Print a line of the result, and flush it."""
    print(text, flush=True)


def printable_lines(text: str) -> str:
    """Escape what is not printable in each line of a text."""
    return "\n".join(map(printable, text.split("\n")))


def counted(n: int, noun: str) -> str:
    """Return a count with its noun: `1 row`, `1,200 rows`."""
    return f"{n:,} {noun}" if n == 1 else f"{n:,} {noun}s"


def complain(text: str) -> None:
    """Print an error or a notice on stderr, as one paragraph after `requite: `,
    without passwords of URLs."""
    print(f"requite: {printable_lines(redact_text(text))}", file=sys.stderr, flush=True)


def say_json(record: Mapping[str, Any]) -> None:
    """Print a result for machines: one object on one line. Characters that are not printable are
    escaped (`\\u009b`), since a peer may have sent them, and stdout may be a terminal."""
    text = json.dumps(record, ensure_ascii=False)
    if not text.isprintable():
        text = "".join(one if one.isprintable() else json.dumps(one)[1:-1] for one in text)
    say(text)


def stdout_console() -> Console:
    """Return a console for tables on stdout; a pipe has 160 columns instead of rich's 80."""
    from rich.console import Console

    width = None if sys.stdout.isatty() else _PIPE_WIDTH
    return Console(highlight=False, width=width)


def stderr_console() -> Console:
    """Return a console for progress on stderr."""
    from rich.console import Console

    return Console(stderr=True, highlight=False)
