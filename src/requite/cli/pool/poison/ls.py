"""`requite pool poison ls`: requests that killed their workers."""

from __future__ import annotations

from typing import Annotated

from cyclopts import Parameter

from requite.cli.options import OUTPUT, QUIET, Logging
from requite.cli.output import printable, say, say_json
from requite.cli.pool.client import DEFAULT, Manager, ask


def ls(
    *,
    manager: Manager = DEFAULT,
    as_json: Annotated[
        bool,
        Parameter(
            name="--json", show_default=False, group=OUTPUT, help="One object per line and request."
        ),
    ] = False,
    logging: Logging = QUIET,
) -> None:
    """List poisoned requests: each worker that received one was lost.

    One line per request: its id, its number of deliveries, the size of its body
    in bytes, its correlation id, and its key. Shows the oldest thousand, or fewer
    if their bodies exceed 64 MiB, and then how many more there are.

      $ requite pool poison ls
    """
    logging.start()
    seen = ask(manager, "/poison")
    for each in seen["poison"]:
        if as_json:
            say_json(each)
        else:
            key = "?" if each["key"] is None else printable(each["key"])
            correlation = printable(each["correlation_id"] or "-")
            count, size = each["attempts"], each["size_bytes"]
            say(f"{each['id']}  {count} tried  {size:,} B  {correlation}  {key}")
    if seen["more"] and not as_json:
        say(f"and {seen['more']} more")
