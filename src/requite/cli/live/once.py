"""Figures on stdout: one table, or one JSON object."""

from __future__ import annotations

from requite.cli.live.broker_lines import lines_of
from requite.cli.live.columns import fitting, line_of, ordered, titles
from requite.cli.live.record import record_of
from requite.cli.live.service_rows import BUSIEST, SERVICES
from requite.cli.live.styles import text_of
from requite.cli.output import say_json, stdout_console
from requite.metrics.figures import BrokerFigures


def print_figures(figures: BrokerFigures, place: str, *, as_json: bool) -> None:
    """Print the figures of the broker at `place`, its URL without a password."""
    if as_json:
        say_json(record_of(figures))
        return
    console = stdout_console()
    shown = fitting(SERVICES, console.width)
    rows = ordered(figures.services, SERVICES, BUSIEST, is_reversed=False)
    lines = lines_of(figures, place, console.width)
    lines += [[], titles(shown, SERVICES[BUSIEST].title, is_reversed=False)]
    console.print(text_of([*lines, *(line_of(row, shown) for row in rows)]))
