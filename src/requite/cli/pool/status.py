"""`requite pool status`: the status of a pool."""

from __future__ import annotations

from typing import Any

from requite.cli.exit_codes import ExitCode
from requite.cli.options import QUIET, JsonFlag, Logging
from requite.cli.output import printable, say, say_json
from requite.cli.pool.client import DEFAULT, Manager, ask


def status(
    *, manager: Manager = DEFAULT, as_json: JsonFlag = False, logging: Logging = QUIET
) -> int:
    """Show the status of a pool.

    Shows whether the manager is active or stands by, the number of groups, and
    the counts of orphans (requests without a group) and dead letters (requests
    that no worker answered). The exit code is 0 while the manager is active or
    stands by.

      $ requite pool status
      $ requite pool status --manager http://127.0.0.1:8670 --json
    """
    logging.start()
    seen = ask(manager, "/status")
    if as_json:
        say_json(seen)
    else:
        for line in _lines(seen):
            say(line)
    return ExitCode.OK if seen["state"] in ("active", "standby") else ExitCode.UNAVAILABLE


def _lines(seen: dict[str, Any]) -> list[str]:
    groups = seen["groups"]
    active = sum(group["expected"] == "active" for group in groups)
    unbound = sum(group["expected"] == "unbound" for group in groups)
    running = sum(group["running"] for group in groups)
    # A manager of an older version has no limit.
    most = f"; at most {seen['groups_max']:,}" if "groups_max" in seen else ""
    draining = ", draining" if seen["draining"] else ""
    return [
        f"pool          {printable(seen['pool'])} ({printable(seen['instance'])})",
        f"state         {seen['state']}{draining}",
        f"version       {printable(seen['version'])}",
        f"groups        {active} active, {unbound} unbound, {running} running{most}",
        *(_at_broker(seen) if seen["broker"] else _on_rabbitmq(seen)),
    ]


def _on_rabbitmq(seen: dict[str, Any]) -> list[str]:
    orphans, dead = seen["orphans"], seen["dead_letters"]
    reasons = ", ".join(f"{count} {reason}" for reason, count in dead["by_reason"].items())
    return [
        f"orphans       {orphans['waiting']} waiting, {orphans['forwarded']} republished",
        f"dead letters  {reasons or 'none'}",
        f"poison        {dead['poison']} since the manager started",
    ]


def _at_broker(seen: dict[str, Any]) -> list[str]:
    waiting = sum(group["messages"] or 0 for group in seen["groups"])
    return [f"broker        {printable(seen['broker'])}", f"requests      {waiting} waiting"]
