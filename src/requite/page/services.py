"""The page of one service: its workers, what they hold, and its last hour."""

from __future__ import annotations

from typing import Final, NamedTuple

from requite.metrics.figures import Figures, ServiceFigures, figures_in, oldest_s
from requite.page.curves import Curves
from requite.page.readings import BrokerSnapshot, BrokerToShow
from requite.page.rendering import render
from requite.protocols.majordomo import census as at
from requite.protocols.majordomo.census import NO_TALLY, Traffic
from requite.protocols.majordomo.reading import by_status
from requite.shell import clock

WORKERS_MAX: Final = 200
HOLDS_MAX: Final = 8
GONE: Final = {"state": "<p>The broker has no such service now.</p>", "charts": "", "workers": ""}
"""The parts of an open page of a service that was removed."""

_UNKNOWN: Final[Figures] = figures_in(NO_TALLY, 1.0)


class ServiceView(NamedTuple):
    """The service that a visitor wants to see."""

    name: str


class Services:
    """Makes the parts of the pages of services."""

    def __init__(self, broker: BrokerToShow, curves: Curves) -> None:
        self._broker: Final = broker
        self._curves: Final = curves

    def parts(self, snapshot: BrokerSnapshot, view: ServiceView) -> dict[str, str] | None:
        """Return the HTML of each part that changes, by its id; None if there is no such
        service."""
        seen = self._broker.traffic(view.name)
        if seen is None:
            return None
        now = clock.now()
        named = _find(snapshot, seen)
        total = {**by_status(seen.tally), "redelivered": seen.tally[at.REDELIVERED]}
        values = {
            "snapshot": snapshot,
            "seen": seen,
            "oldest_s": oldest_s(seen, now),
            "happened": _UNKNOWN if named is None else named.happened,
            "is_named": named is not None,
            "named_max": snapshot.named_max,
            "accepted": seen.tally[at.ACCEPTED],
            "total": {name: number for name, number in total.items() if number},
        }
        worker_views = self._broker.worker_views(view.name, WORKERS_MAX, HOLDS_MAX)
        workers = {
            "workers": worker_views,
            "service": view.name,
            "now": now,
            "more": seen.workers - len(worker_views),
        }
        return {
            "state": render("_service.html", values),
            "charts": "" if named is None else self._curves.of_service(view.name),
            "workers": render("_workers.html", workers),
        }


def _find(snapshot: BrokerSnapshot, seen: Traffic) -> ServiceFigures | None:
    """Return what happened at a service, if it is shown by its name."""
    services = snapshot.figures.services
    return next((each for each in services if each.seen.number == seen.number), None)
