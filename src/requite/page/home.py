"""The page of the broker: its state, its curves, and the table of its services."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from math import isnan
from typing import Final, NamedTuple
from urllib.parse import urlencode

from markupsafe import Markup

from requite.metrics.figures import ServiceFigures
from requite.metrics.selection import OTHER
from requite.page.curves import Curves
from requite.page.readings import BrokerSnapshot
from requite.page.rendering import TEXT_SIZE, render

BY_NAME: Final = "name"


class Column(NamedTuple):
    """A column of the table: its key in addresses, its title, what it means, and what it sorts by;
    `is_text` columns sort from A to Z, others from the largest."""

    key: str
    title: str
    about: str
    value: Callable[[ServiceFigures], float]
    is_text: bool = False


COLUMNS: Final = (
    Column(BY_NAME, "service", "", lambda _: 0, is_text=True),
    Column("workers", "workers", "busy of all", lambda each: each.seen.workers),
    Column("queued", "queued", "requests that wait for a worker", lambda each: each.seen.queued),
    Column("running", "running", "requests at workers", lambda each: each.seen.in_progress),
    Column("oldest", "oldest wait", "of those that are queued", lambda each: each.oldest_s),
    Column("rate", "req/s", "requests per second", lambda each: each.happened.accepted),
    Column("p50", "p50", "half of the replies took less", lambda each: each.happened.p50_s),
    Column("p99", "p99", "of 100 replies, 99 took less", lambda each: each.happened.p99_s),
    Column(
        "errors",
        "errors/s",
        "requests that ended without a reply",
        lambda each: sum(each.happened.failed.values()),
    ),
    Column(
        "again",
        "redelivered/s",
        "attempts after a worker was lost",
        lambda each: each.happened.redelivered,
    ),
)
_BY_KEY: Final = {each.key: each for each in COLUMNS}


class HomeView(NamedTuple):
    """What a visitor wants to see: services whose names contain `filter`, sorted by a column;
    `is_reversed`: the other way round."""

    filter: str = ""
    sort: str = BY_NAME
    is_reversed: bool = False

    @property
    def query(self) -> str:
        """The view as the query of an address."""
        sort = f"-{self.sort}" if self.is_reversed else self.sort
        named = {"q": self.filter, "sort": "" if sort == BY_NAME else sort}
        return urlencode({name: value for name, value in named.items() if value})


def view_of(query: Mapping[str, str]) -> HomeView:
    """Return the view that an address asks for; what it does not know counts as not given."""
    sort = query.get("sort", BY_NAME)
    key = sort.removeprefix("-")
    if key not in _BY_KEY:
        return HomeView(query.get("q", "")[:TEXT_SIZE])
    return HomeView(query.get("q", "")[:TEXT_SIZE], key, sort.startswith("-"))


class Home:
    """Makes the parts of the page from a snapshot of the broker, the rows of its table once for all
    who look."""

    def __init__(self, curves: Curves) -> None:
        self._curves: Final = curves
        self._of: BrokerSnapshot | None = None
        self._state = ""
        self._rows: dict[int, Markup] = {}  # by number of the service

    def parts(self, snapshot: BrokerSnapshot, view: HomeView) -> dict[str, str]:
        """Return the HTML of each part that changes, by its id."""
        if snapshot is not self._of:
            self._render(snapshot)
            self._of = snapshot
        chosen = _chosen(snapshot.figures.services, view)
        rows = [self._rows[each.seen.number] for each in chosen]
        table = {"rows": rows, "view": view, "columns": COLUMNS, "sort_url": _sort_url}
        return {
            "state": self._state,
            "charts": self._curves.of_broker(),
            "services": render("_services.html", {**table, "figures": snapshot.figures}),
        }

    def _render(self, snapshot: BrokerSnapshot) -> None:
        figures = snapshot.figures
        self._state = render("_state.html", {"snapshot": snapshot, "figures": figures})
        self._rows = {
            each.seen.number: Markup(render("_row.html", {"each": each, "is_rest": _is_rest(each)}))
            for each in figures.services
        }


def _chosen(services: Sequence[ServiceFigures], view: HomeView) -> list[ServiceFigures]:
    """Return the services that a view shows, in its order; the sum of the others is the last."""
    wanted = view.filter.casefold()
    named = [each for each in services if not _is_rest(each)]
    shown = [each for each in named if wanted in each.seen.name.casefold()]
    shown.sort(key=lambda each: each.seen.name)
    column = _BY_KEY[view.sort]
    if column.is_text:
        shown.sort(key=lambda each: each.seen.name, reverse=view.is_reversed)
    else:
        shown.sort(key=lambda each: _size(column.value(each)), reverse=not view.is_reversed)
    return shown if wanted else [*shown, *(each for each in services if _is_rest(each))]


def _size(value: float) -> float:
    return -1.0 if isnan(value) else value


def _is_rest(each: ServiceFigures) -> bool:
    """Whether this is the sum of the services without a row, which is no service."""
    return each.seen.number == 0 and each.seen.name == OTHER


def _sort_url(view: HomeView, column: Column) -> str:
    """Return the address of the same view in another order; of the sorted column, the reverse."""
    is_again = column.key == view.sort and not view.is_reversed
    query = HomeView(view.filter, column.key, is_again).query
    return f"/?{query}" if query else "/"
