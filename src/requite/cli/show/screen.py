"""What the demo shows while it runs: a live display in a terminal, plain lines elsewhere.

Both go to stderr, so that stdout holds the result alone.
"""

from __future__ import annotations

import sys
import time
from collections import deque
from collections.abc import Sequence
from contextlib import AbstractContextManager, contextmanager
from typing import TYPE_CHECKING, Final, Protocol

from requite.cli.latency import in_ms, percentile
from requite.cli.output import stderr_console
from requite.cli.show.tally import Tally
from requite.testing.processes import State

if TYPE_CHECKING:
    from collections.abc import Iterator

    from rich.console import RenderableType
    from rich.live import Live

REFRESH_EVERY_S: Final = 0.125
_EVENTS_SHOWN: Final = 14
_BAR_WIDTH: Final = 30
_LINE_EVERY_S: Final = 1.0
_RATE_OVER_S: Final = 1.0
_STYLE: Final = {
    State.STARTING: "yellow",
    State.RUNNING: "green",
    State.STOPPED: "blue",
    State.KILLED: "red",
    State.ABSENT: "dim",
}

_WORDS: Final = {
    "red": ("killed (SIGKILL)",),
    "blue": ("stopped (SIGSTOP)", "resumed (SIGCONT)"),
    "green": ("started anew", "registered again", "started again by a request"),
}


class Member(Protocol):
    """A process as the screen shows it; `pid` 0: it does not run."""

    @property
    def name(self) -> str: ...
    @property
    def state(self) -> State: ...
    @property
    def pid(self) -> int: ...


class Screen(Protocol):
    """Where the demo reports to."""

    def note(self, text: str) -> None:
        """Tell what has just happened."""

    def refresh(self) -> None:
        """Show how far the requests are; called some times a second."""


class Gauge:
    """How far the requests are and how fast they go."""

    def __init__(self, tally: Tally) -> None:
        self.tally = tally
        self._started_at = time.monotonic()
        self._seen: deque[tuple[float, int]] = deque([(self._started_at, 0)])

    @property
    def elapsed_s(self) -> float:
        """Seconds since the start."""
        return time.monotonic() - self._started_at

    def rate(self) -> float:
        """Return the calls that ended per second, over the last second."""
        now, done = time.monotonic(), self.tally.done
        self._seen.append((now, done))
        while len(self._seen) > 2 and now - self._seen[1][0] >= _RATE_OVER_S:
            self._seen.popleft()
        since, before = self._seen[0]
        return (done - before) / (now - since) if now > since else 0.0

    def line(self) -> str:
        """Describe the state in one line."""
        recent = self.tally.recent_s()
        return (
            f"{self.tally.done:,} of {len(self.tally.asked):,} requests, {self.rate():,.0f}/s, "
            f"p50 {in_ms(percentile(recent, 0.5))} ms, p99 {in_ms(percentile(recent, 0.99))} ms"
        )


def open_screen(tally: Tally, members: Sequence[Member]) -> AbstractContextManager[Screen]:
    """Return the screen that suits stderr. `members` is looked at anew for every refresh."""
    gauge = Gauge(tally)
    return _live(gauge, members) if sys.stderr.isatty() else _plain(gauge)


class PlainScreen:
    """Lines: what happened, and how far it is every second."""

    def __init__(self, gauge: Gauge) -> None:
        self._gauge = gauge
        self._next_line_at_s = _LINE_EVERY_S

    def note(self, text: str) -> None:
        """See `Screen`."""
        print(f"{self._gauge.elapsed_s:6.1f} s  {text}", file=sys.stderr, flush=True)

    def refresh(self) -> None:
        """See `Screen`."""
        if self._gauge.elapsed_s >= self._next_line_at_s:
            self._next_line_at_s = self._gauge.elapsed_s + _LINE_EVERY_S
            self.note(self._gauge.line())


@contextmanager
def _plain(gauge: Gauge) -> Iterator[Screen]:
    yield PlainScreen(gauge)


class LiveScreen:
    """A bar, the processes and the latest events, drawn in place."""

    def __init__(self, gauge: Gauge, members: Sequence[Member], live: Live) -> None:
        self._gauge = gauge
        self._members = members
        self._live = live
        self._events: deque[tuple[float, str]] = deque(maxlen=_EVENTS_SHOWN)

    def note(self, text: str) -> None:
        """See `Screen`."""
        self._events.append((self._gauge.elapsed_s, text))
        self.refresh()

    def refresh(self) -> None:
        """See `Screen`."""
        self._live.update(self._draw(), refresh=True)

    def _draw(self) -> RenderableType:
        from rich.console import Group
        from rich.progress_bar import ProgressBar
        from rich.table import Table
        from rich.text import Text

        tally = self._gauge.tally
        bar = ProgressBar(total=len(tally.asked), completed=tally.done, width=_BAR_WIDTH)
        top = Table.grid(padding=(0, 2))
        top.add_row(bar, Text(self._gauge.line()))
        return Group(top, "", self._processes(), "", *self._lines())

    def _processes(self) -> RenderableType:
        from rich.table import Table
        from rich.text import Text

        table = Table.grid(padding=(0, 2))
        for member in self._members:
            state = Text(member.state.value, style=_STYLE[member.state])
            pid = f"pid {member.pid}" if member.pid else ""
            table.add_row(member.name, state, Text(pid, style="dim"))
        return table

    def _lines(self) -> list[RenderableType]:
        from rich.text import Text

        lines: list[RenderableType] = []
        for at_s, text in self._events:
            line = Text.assemble((f"{at_s:6.1f} s  ", "dim"), text, overflow="ellipsis")
            line.no_wrap = True
            for style, words in _WORDS.items():
                line.highlight_words(words, style)
            lines.append(line)
        return lines


@contextmanager
def _live(gauge: Gauge, members: Sequence[Member]) -> Iterator[Screen]:
    from rich.live import Live

    with Live(console=stderr_console(), auto_refresh=False) as live:
        screen = LiveScreen(gauge, members, live)
        yield screen
        screen.refresh()
