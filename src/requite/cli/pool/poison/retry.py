"""`requite pool poison retry`: retry requests that killed their workers."""

from __future__ import annotations

from typing import Annotated

from cyclopts import Parameter

from requite.cli.exit_codes import ExitCode
from requite.cli.options import QUIET, Logging
from requite.cli.output import say
from requite.cli.pool.client import DEFAULT, Manager, ask
from requite.errors import ConfigurationError


def retry(
    *ids: Annotated[str, Parameter(name="ID", help="An id, as `requite pool poison ls` shows it.")],
    everything: Annotated[
        bool, Parameter(name="--all", show_default=False, help="All poisoned requests.")
    ] = False,
    manager: Manager = DEFAULT,
    logging: Logging = QUIET,
) -> int:
    """Publish poisoned requests again, as if they were new.

    Their callers have already received an error, and usually no longer wait.
    Prints how many were published; exit code 1 if none was found.

      $ requite pool poison retry 3f2504e04f8941d3
      $ requite pool poison retry --all
    """
    logging.start()
    if everything == bool(ids):
        raise ConfigurationError("nothing to retry: give ids of requests, or --all")
    said = {"all": True} if everything else {"ids": list(ids)}
    count = ask(manager, "/poison/retry", said)["retried"]
    say(f"retried {count}")
    return ExitCode.OK if count else ExitCode.FAILED
