"""The options that `requite demo` and `requite pool demo` share."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Final

from cyclopts import Group, Parameter, validators

_FAULTS: Final = Group("Faults", sort_key=10)
_AUDIT: Final = Group("Audit", sort_key=20)
_AT_LEAST_ONE: Final = validators.Number(gte=1)
_NOT_NEGATIVE: Final = validators.Number(gte=0)


@Parameter(name="*")
@dataclass(frozen=True, slots=True)
class Scale:
    """Amounts of processes, requests and faults; the audit."""

    requests: Annotated[
        int | None,
        Parameter(
            metavar="N",
            validator=_AT_LEAST_ONE,
            help="Number of requests; by default one per airport.",
        ),
    ] = None
    workers: Annotated[
        int,
        Parameter(
            metavar="N",
            validator=validators.Number(gte=2),
            help="Worker processes. A pool has one per country, `lazy-pirate` a single one.",
        ),
    ] = 4
    clients: Annotated[
        int,
        Parameter(metavar="N", validator=_AT_LEAST_ONE, help="Clients, each with its connection."),
    ] = 2
    concurrency: Annotated[
        int,
        Parameter(metavar="N", validator=_AT_LEAST_ONE, help="Calls in flight per client."),
    ] = 64
    worker_kills: Annotated[
        int,
        Parameter(
            metavar="N",
            validator=_NOT_NEGATIVE,
            group=_FAULTS,
            help="How often a worker is killed (SIGKILL).",
        ),
    ] = 6
    broker_kills: Annotated[
        int,
        Parameter(
            metavar="N",
            validator=_NOT_NEGATIVE,
            group=_FAULTS,
            help="How often the broker or queue is killed (SIGKILL), if there is one. A pool's "
            "manager is killed as often as its RabbitMQ.",
        ),
    ] = 2
    stops: Annotated[
        int,
        Parameter(
            metavar="N",
            validator=_NOT_NEGATIVE,
            group=_FAULTS,
            help="How often a worker is frozen (SIGSTOP): for a second, or until it is dropped.",
        ),
    ] = 1
    no_audit: Annotated[
        bool,
        Parameter(show_default=False, group=_AUDIT, help="Write no journals, and run no audit."),
    ] = False
    keep: Annotated[
        Path | None,
        Parameter(
            metavar="DIR",
            group=_AUDIT,
            help="Keep journals, lake and report in DIR; by default only the report is kept.",
        ),
    ] = None


USUAL: Final = Scale()
