"""`requite demo`: make 28,000 calls while workers and the broker are killed."""

from __future__ import annotations

from typing import Annotated, Final

from cyclopts import Parameter

from requite.cli.options import QUIET, JsonFlag, Logging
from requite.cli.show.demos import DEMOS, find_demo
from requite.cli.show.options import USUAL, Scale
from requite.errors import ConfigurationError

_USUAL_PATTERN: Final = "majordomo"


def _known_pattern(_kind: object, name: str) -> None:
    find_demo(name)


def demo(
    *,
    pattern: Annotated[
        str,
        Parameter(
            metavar="NAME",
            validator=_known_pattern,
            help=f"Pattern to show: {', '.join(DEMOS)}; or a part of a name, such as `paranoid` or "
            "`freelance` (the agent).",
        ),
    ] = _USUAL_PATTERN,
    watch: Annotated[
        bool,
        Parameter(
            show_default=False,
            help="Go on until Ctrl-C, and print the address of the broker's page, where workers "
            "are seen to die and come back. There is no audit.",
        ),
    ] = False,
    scale: Scale = USUAL,
    as_json: JsonFlag = False,
    logging: Logging = QUIET,
) -> int:
    """Kill workers and the broker during 28,000 calls, and check every reply.

    Starts a broker and workers, and requests the nearest neighbours of each of
    the world's 28,000 airports from a typed service. Meanwhile it kills workers, freezes one until
    the broker counts it as lost, and kills and restarts the broker. Then it
    compares every reply with a direct computation. Finally Spark proves, from
    the journals of all processes alone, that each request ended exactly once,
    and writes a report.

    --pattern shows another pattern of reliable request-reply, with its own
    processes and faults. Only `majordomo` and `pool` (`requite pool demo`, on
    RabbitMQ) have the audit, and only `majordomo` can be watched.

    Exit code 0: every request was answered exactly once and correctly, and the
    audit agrees. With --json the last line is an object: requests, answered,
    correct, lost, duplicated, retries, worker_kills, broker_kills, manager_kills
    (of a pool), requests_per_s, p50_ms, p99_ms, audit (accepted, exactly_one,
    missing, duplicate, in_flight; null without one). Needs airportsdata and
    msgspec (extra `demo`), and Spark for the audit (extras `spark` and `report`).
    """
    from requite.cli.show.report import show

    logging.start()
    if watch:
        return _watch(pattern, scale, as_json=as_json)
    return show(find_demo(pattern), scale, as_json=as_json)


def _watch(pattern: str, scale: Scale, *, as_json: bool) -> int:
    from requite.cli.show import watched

    if find_demo(pattern) != watched.PATTERN:
        raise ConfigurationError(f"--watch: only the pattern {watched.PATTERN} has a page")
    return watched.watch(scale, as_json=as_json)
