"""The display of a running demo on stderr: live in a terminal, plain lines elsewhere."""

from __future__ import annotations

import sys
import time
from collections import deque
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, contextmanager
from typing import TYPE_CHECKING, Final, Protocol

from requite.cli.latency import in_ms, percentile
from requite.cli.output import stderr_console
from requite.cli.show.replies import Replies
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
    "green": ("restarted", "registered again", "started again by a request"),
}


class Member(Protocol):
    """A process as the screen shows it; `pid` 0: it does not run."""

    @property
    def name(self) -> str: ...
    @property
    def state(self) -> State: ...
    @property
    def pid(self) -> int: ...


Members = Callable[[], Sequence[Member]]


class Screen(Protocol):
    """Where a demo reports events and progress."""

    def note(self, text: str) -> None:
        """Show an event."""

    def refresh(self) -> None:
        """Show the progress; called several times per second."""


class Progress:
    """Progress and rate of the requests."""

    def __init__(self, replies: Replies) -> None:
        self.replies = replies
        self._started_at = time.monotonic()
        self._samples: deque[tuple[float, int]] = deque([(self._started_at, 0)])

    @property
    def elapsed_s(self) -> float:
        """Seconds since the start."""
        return time.monotonic() - self._started_at

    def rate(self) -> float:
        """Return how many calls ended per second, over the last second."""
        now, done = time.monotonic(), self.replies.done
        self._samples.append((now, done))
        while len(self._samples) > 2 and now - self._samples[1][0] >= _RATE_OVER_S:
            self._samples.popleft()
        since, before = self._samples[0]
        return (done - before) / (now - since) if now > since else 0.0

    def line(self) -> str:
        """Return progress, rate and latencies in one line."""
        recent = self.replies.recent_s()
        return (
            f"{self.replies.done:,} of {len(self.replies.airports):,} requests, "
            f"{self.rate():,.0f}/s, "
            f"p50 {in_ms(percentile(recent, 0.5))} ms, p99 {in_ms(percentile(recent, 0.99))} ms"
        )


def open_screen(replies: Replies, members: Members) -> AbstractContextManager[Screen]:
    """Return the screen for stderr. Each refresh calls `members` for the current processes."""
    progress = Progress(replies)
    return _live(progress, members) if sys.stderr.isatty() else _plain(progress)


class PlainScreen:
    """Prints events, and the progress every second."""

    def __init__(self, progress: Progress) -> None:
        self._progress = progress
        self._next_line_at_s = _LINE_EVERY_S

    def note(self, text: str) -> None:
        """See `Screen`."""
        print(f"{self._progress.elapsed_s:6.1f} s  {text}", file=sys.stderr, flush=True)

    def refresh(self) -> None:
        """See `Screen`."""
        if self._progress.elapsed_s >= self._next_line_at_s:
            self._next_line_at_s = self._progress.elapsed_s + _LINE_EVERY_S
            self.note(self._progress.line())


@contextmanager
def _plain(progress: Progress) -> Iterator[Screen]:
    yield PlainScreen(progress)


class LiveScreen:
    """Draws a bar, the processes and the latest events in place."""

    def __init__(self, progress: Progress, members: Members, live: Live) -> None:
        self._progress = progress
        self._members = members
        self._live = live
        self._events: deque[tuple[float, str]] = deque(maxlen=_EVENTS_SHOWN)

    def note(self, text: str) -> None:
        """See `Screen`."""
        self._events.append((self._progress.elapsed_s, text))
        self.refresh()

    def refresh(self) -> None:
        """See `Screen`."""
        self._live.update(self._draw(), refresh=True)

    def _draw(self) -> RenderableType:
        from rich.console import Group
        from rich.progress_bar import ProgressBar
        from rich.table import Table
        from rich.text import Text

        replies = self._progress.replies
        bar = ProgressBar(total=len(replies.airports), completed=replies.done, width=_BAR_WIDTH)
        top = Table.grid(padding=(0, 2))
        top.add_row(bar, Text(self._progress.line()))
        return Group(top, "", self._processes(), "", *self._lines())

    def _processes(self) -> RenderableType:
        from rich.table import Table
        from rich.text import Text

        table = Table.grid(padding=(0, 2))
        for member in self._members():
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
def _live(progress: Progress, members: Members) -> Iterator[Screen]:
    from rich.live import Live

    with Live(console=stderr_console(), auto_refresh=False) as live:
        screen = LiveScreen(progress, members, live)
        yield screen
        screen.refresh()
