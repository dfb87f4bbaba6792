"""The curves of the last hour, which are drawn once for each sample."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Final

from requite.metrics import formats
from requite.page.charts import Chart, Curve, chart
from requite.page.history import History, Sample
from requite.page.rendering import duration, render

_DRAWN_MAX: Final = 200  # services whose curves are kept
_COUNTED: Final = (
    Curve("accepted", "first", lambda each: each.accepted),
    Curve("errors", "bad", lambda each: each.failed),
)
_TOOK: Final = (
    Curve("p50", "first", lambda each: each.p50_s),
    Curve("p99", "second", lambda each: each.p99_s),
)


class Curves:
    """Draws the samples of `history`."""

    def __init__(self, history: History) -> None:
        self._history: Final = history
        self._drawn: dict[str | None, tuple[datetime | None, str]] = {}

    def of_broker(self) -> str:
        """Return the curves of all requests, as HTML."""
        return self._draw(None, self._history.of_broker())

    def of_service(self, name: str) -> str:
        """Return the curves of a service, as HTML."""
        return self._draw(name, self._history.of_service(name))

    def _draw(self, name: str | None, samples: Sequence[Sample]) -> str:
        newest = samples[-1].at if samples else None
        known = self._drawn.get(name)
        if known is not None and known[0] == newest:
            return known[1]
        if len(self._drawn) >= _DRAWN_MAX:
            self._drawn.clear()
        html = render("_charts.html", {"charts": _charts(samples)})
        self._drawn[name] = newest, html
        return html


def _charts(samples: Sequence[Sample]) -> list[Chart]:
    return [
        chart("Requests", "per second", samples, _COUNTED, formats.rate),
        chart("Time to the reply", "", samples, _TOOK, duration),
    ]
