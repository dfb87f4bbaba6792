"""`requite access check`: validate an access file, and explain a decision."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from cyclopts import Parameter

from requite.cli.exit_codes import ExitCode
from requite.cli.options import QUIET, JsonFlag, Logging
from requite.cli.output import counted, printable, say, say_json
from requite.errors import ConfigurationError
from requite.principal import VERBS


def check(
    file: Annotated[Path, Parameter(help="The access file.")],
    user: Annotated[str, Parameter(show_default=False, help="A user of the file.")] = "",
    verb: Annotated[
        str, Parameter(show_default=False, help=f"What it wants to do: {', '.join(VERBS)}.")
    ] = "",
    name: Annotated[
        str, Parameter(show_default=False, help="The service, pool, operation or user.")
    ] = "",
    /,
    *,
    as_json: JsonFlag = False,
    logging: Logging = QUIET,
) -> int:
    """Validate an access file, or say whether a user may do something, and why.

    With FILE alone it validates the file. With USER, VERB and NAME it exits with
    0 if the file grants it, and with 1 if not. The broker decides in the same
    way, for what the request really needs: to submit a durable request for
    `pay`, a user needs `titanic submit` and `call pay`.

      $ requite access check access.toml shop call pay.card
    """
    from requite.access import Access

    logging.start()
    access = Access.read(file)
    if not user:
        if as_json:
            say_json({"users": len(access.users)})
        else:
            say(printable(f"{file} is valid: {counted(len(access.users), 'user')}"))
        return ExitCode.OK
    known = next((each for each in VERBS if each == verb), None)
    if known is None or not name:
        raise ConfigurationError(
            f"give USER, VERB and NAME, such as `{user} call price`; VERB is one of"
            f" {', '.join(VERBS)}"
        )
    allowed, why, line = access.decide(user, known, name)
    where = f"line {line} of {file}" if line else str(file)
    if as_json:
        say_json({"allowed": allowed, "why": why, "line": line})
    else:
        verdict = "allowed" if allowed else "denied"
        say(printable(f"{verdict}: {user} {verb} {name}: {why} ({where})"))
    return ExitCode.OK if allowed else ExitCode.FAILED
