"""How much happens in a show: the options that `requite demo` and `requite pool demo` share."""

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
    """How much happens, and what is kept of it."""

    requests: Annotated[
        int | None,
        Parameter(
            metavar="N",
            validator=_AT_LEAST_ONE,
            help="How many requests; by default one per airport.",
        ),
    ] = None
    workers: Annotated[
        int,
        Parameter(
            metavar="N",
            validator=validators.Number(gte=2),
            help="Processes that do the work, in a pool one per country; a Lazy Pirate has one.",
        ),
    ] = 4
    clients: Annotated[
        int,
        Parameter(metavar="N", validator=_AT_LEAST_ONE, help="Clients, a connection each."),
    ] = 2
    concurrency: Annotated[
        int,
        Parameter(metavar="N", validator=_AT_LEAST_ONE, help="Calls outstanding per client."),
    ] = 64
    worker_kills: Annotated[
        int,
        Parameter(metavar="N", validator=_NOT_NEGATIVE, group=_FAULTS, help="SIGKILLs of those."),
    ] = 6
    broker_kills: Annotated[
        int,
        Parameter(
            metavar="N",
            validator=_NOT_NEGATIVE,
            group=_FAULTS,
            help="SIGKILLs of what stands in between, where something does; a pool's manager is "
            "killed as often.",
        ),
    ] = 2
    stops: Annotated[
        int,
        Parameter(
            metavar="N",
            validator=_NOT_NEGATIVE,
            group=_FAULTS,
            help="SIGSTOPs of a worker that last until it is given up, or for a second.",
        ),
    ] = 1
    no_audit: Annotated[
        bool,
        Parameter(
            show_default=False, group=_AUDIT, help="Keep no journal, and leave the audit out."
        ),
    ] = False
    keep: Annotated[
        Path | None,
        Parameter(
            metavar="DIR",
            group=_AUDIT,
            help="Keep journal, lake and report in DIR; without, only the report is left.",
        ),
    ] = None


USUAL: Final = Scale()
