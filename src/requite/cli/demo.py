"""`requite demo`: watch requests get their replies while everything around them dies."""

from __future__ import annotations

from typing import Annotated, Final

from cyclopts import Parameter

from requite.cli.options import QUIET, JsonFlag, Logging
from requite.cli.show.demos import DEMOS, find_demo
from requite.cli.show.options import USUAL, Scale

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
            help=f"What to show: {', '.join(DEMOS)}; a part such as `paranoid` or `freelance` "
            "(its agent) will do.",
        ),
    ] = _USUAL_PATTERN,
    scale: Scale = USUAL,
    as_json: JsonFlag = False,
    logging: Logging = QUIET,
) -> int:
    """Watch requests get their replies while everything around them dies.

    Starts a broker and workers, and asks them for the nearest neighbours of each
    of the world's 28,000 airports. Meanwhile it kills workers, freezes one until
    it counts as lost, and kills and restarts the broker. Then it compares every
    answer with a direct computation of its own. At last Spark reads the journals
    that everybody kept, proves from them alone that each request ended exactly
    once, and writes a report.

    With --pattern it shows another pattern of reliable request-reply in the same
    way: who serves, who stands in between, and what is killed is that pattern's.
    Of these, `pool` (`requite pool demo`, on RabbitMQ) has the audit as well.

    Exit code 0 means that every request was answered exactly once and correctly,
    and that the audit found the same. With --json the last line is an object:
    requests, answered, correct, lost, duplicated, retries, worker_kills,
    broker_kills, manager_kills (of a pool), requests_per_s, p50_ms, p99_ms, audit
    (accepted, exactly_one, missing, duplicate, in_flight; null without one). Needs
    airportsdata (extra `demo`), for the audit also Spark (extras `spark` and
    `report`).
    """
    from requite.cli.show.report import show

    logging.start()
    return show(find_demo(pattern), scale, as_json=as_json)
