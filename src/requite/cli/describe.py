"""`requite describe`: show what typed services take and return."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from cyclopts import Parameter

from requite.cli.candidates import typed_services
from requite.cli.descriptions import fetch
from requite.cli.exit_codes import ExitCode
from requite.cli.failures import advised
from requite.cli.options import PLAIN, QUIET, Connection, JsonFlag, Logging, Timeout
from requite.cli.output import complain, printable_lines, say
from requite.errors import ConfigurationError

if TYPE_CHECKING:
    from requite.typed.described import Description

SeveralServices = Annotated[
    str,
    Parameter(
        name="SERVICE",
        completer=typed_services,
        help="The name of a typed service: `orders`, or `orders.v2` for its version 2. Without "
        "one, that of the URL, or all that the broker knows.",
    ),
]


def describe(
    url: Annotated[str, Parameter(help="Broker, or a service without one, as for `call`.")],
    /,
    *services: SeveralServices,
    diff: Annotated[
        Path | None,
        Parameter(
            metavar="FILE",
            help="Print what is incompatible with an older description in FILE (the output of "
            "--json), and exit with 1 if anything is.",
        ),
    ] = None,
    asyncapi: Annotated[
        bool,
        Parameter(show_default=False, help="Print a document of AsyncAPI 3.0, for one service."),
    ] = False,
    timeout: Timeout = 5.0,
    as_json: JsonFlag = False,
    connection: Connection = PLAIN,
    logging: Logging = QUIET,
) -> int:
    """Show the methods of typed services: what each takes, returns and raises.

    Asks each service's method `describe`. With --json the descriptions as JSON,
    with JSON Schema 2020-12: one object for one service, else an object with
    the key `services`.

      $ requite describe mdp://127.0.0.1:5555
      $ requite describe mdp://127.0.0.1:5555 orders --json > orders.json
      $ requite describe mdp://127.0.0.1:5555 orders --diff orders.json
    """
    from requite.shell.aio import run

    logging.start()
    if (diff is not None) + asyncapi + as_json > 1:
        raise ConfigurationError("--diff, --asyncapi and --json exclude each other")
    old = None if diff is None else _read(diff)
    with advised(url):
        found = run(fetch(url, services, connection, timeout))
    if (old is not None or asyncapi) and len(found) != 1:
        raise ConfigurationError(f"name one service; there are {len(found)}")
    if old is not None:
        return _compare(old, found[0])
    if asyncapi:
        from requite.typed.asyncapi import asyncapi_of

        say(json.dumps(asyncapi_of(found[0]), indent=2, ensure_ascii=False))
    elif as_json:
        say(_encode(found[0] if len(found) == 1 else {"services": found}))
    else:
        say(printable_lines("\n\n".join("\n".join(_lines(each)) for each in found) or _NONE))
    return ExitCode.OK


_NONE = "no typed services"


def _encode(what: Any) -> str:
    import msgspec

    return msgspec.json.encode(what).decode()


def _read(file: Path) -> Description:
    from requite.typed.described import read_description

    try:
        body = file.read_bytes()
    except OSError as error:
        raise ConfigurationError(f"cannot read {file}: {error.strerror}") from error
    return read_description(body, str(file))


def _compare(old: Description, new: Description) -> ExitCode:
    from requite.typed.changes import incompatible_changes

    changes = incompatible_changes(old, new)
    for change in changes:
        say(printable_lines(change))
    if changes:
        complain(f"{new.service} {new.version} is not compatible with {old.version}")
        return ExitCode.FAILED
    say(f"{new.service} {new.version} is compatible with {old.version}")
    return ExitCode.OK


def _lines(described: Description) -> Iterator[str]:
    from requite.typed.annotations import Annotations

    of = Annotations().of
    yield f"{described.service} {described.version} ({described.codec})"
    for method in described.methods:
        taken = "" if method.input == {"type": "null"} else of(method.input)
        returned = f"each {of(method.output)}" if method.partial else of(method.output)
        raised = ", ".join(error.name for error in method.errors)
        line = f"  {method.address}({taken}) -> {returned}"
        yield line + (f", raises {raised}" if raised else "")
        if method.doc:
            yield f"      {method.doc.partition(chr(10))[0]}"
