"""`requite pool ls`: the groups of a pool."""

from __future__ import annotations

from typing import Annotated, Any

from cyclopts import Parameter

from requite.cli.options import OUTPUT, QUIET, Logging
from requite.cli.output import counted, printable, say, say_json
from requite.cli.pool.client import DEFAULT, Manager, ask


def ls(
    *,
    manager: Manager = DEFAULT,
    as_json: Annotated[
        bool,
        Parameter(
            name="--json", show_default=False, group=OUTPUT, help="One object per line and group."
        ),
    ] = False,
    logging: Logging = QUIET,
) -> None:
    """List the groups of a pool.

    One line per group: its target state, its queue, its number of workers, the
    recent number of messages in its queue, its version, and its key. Faults of
    its workers or its queue follow in separate lines.

      $ requite pool ls
    """
    logging.start()
    for group in ask(manager, "/status")["groups"]:
        if as_json:
            say_json(group)
        else:
            say(_line(group))
            for wrong in (group["failure"], *group["flaws"]):
                if wrong:
                    say(f"         {printable(wrong)}")


def _line(group: dict[str, Any]) -> str:
    expected = group["expected"] or "gone"
    queue = group["queue"] or "unknown"
    if not group["running"]:
        workers = "no workers"
    elif group["workers"] is None:
        workers = "running"
    else:
        workers = counted(group["workers"], "worker")
    messages = "-" if group["messages"] is None else counted(group["messages"], "message")
    version = printable(group["version"] or "-")
    key = printable(group["key"])
    return f"{expected:<8} {queue:<8} {workers:<11} {messages:<12} {version:<14} {key}"
