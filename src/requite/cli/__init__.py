"""The command `requite`: one file per verb, and what the verbs share.

    verbs.py       which verbs there are
    app.py         parses the arguments and runs a verb; every exit code comes from here
    completion.py  tab completion in shells
    config.py      options in a file
    exit_codes.py  what the codes mean
    options.py     options that several verbs take; broker_options.py: those of the broker
    output.py      what is printed where
    logs.py        log lines

The front page and the version are printed without loading the parser, to start fast.
"""

from __future__ import annotations

import gc
import os
import sys
from collections.abc import Sequence

from requite.errors import ConfigurationError

__all__ = ["main"]


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command with `arguments` (None: those of this process); return its exit code."""
    words = sys.argv[1:] if arguments is None else list(arguments)
    if arguments is None:
        gc.disable()  # what is loaded at the start is no garbage; see `app.run`
    code = 0
    try:
        code = _run(words)
        if sys.stdout is not None:  # the parent process may have closed it
            sys.stdout.flush()
    except BrokenPipeError:
        _silence_stdout()
    return code


def _run(words: list[str]) -> int:
    if words in ([], ["--help"], ["-h"], ["help"]):
        from requite.cli.verbs import front_page

        print(front_page())
        return 0
    if words == ["--version"]:
        from requite import __build__, __version__

        print(f"requite {__version__} ({__build__})")
        return 0
    from requite import refuse_windows

    try:
        refuse_windows()
    except ConfigurationError as error:
        print(f"requite: {error}", file=sys.stderr)
        return 2
    from requite.cli.app import run

    return run(words)


def _silence_stdout() -> None:
    """Point stdout at /dev/null after its reader (`head`) closed it, so that Python's flush at exit
    does not fail."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
