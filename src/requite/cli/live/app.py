"""`requite top` in a terminal."""

from __future__ import annotations

import signal
from asyncio import get_running_loop
from typing import ClassVar, Final

from rich.text import Text
from textual import on
from textual.app import App, ComposeResult
from textual.binding import Binding, BindingType
from textual.events import Resize
from textual.screen import ModalScreen
from textual.widgets import Input, Static

from requite.cli.exit_codes import ExitCode
from requite.cli.live.broker_lines import Line, lines_of, service_lines_of
from requite.cli.live.columns import Cell, Tone
from requite.cli.live.fitting import fitted
from requite.cli.live.notices import Notices
from requite.cli.live.polling import SHARE_MAX, Poller, Seen, Trouble
from requite.cli.live.service_rows import BUSIEST, SERVICES
from requite.cli.live.styles import STYLES, shown_text, text_of
from requite.cli.live.table import Table
from requite.cli.live.worker_rows import BY_NAME, WORKERS, WorkerRow
from requite.metrics import formats
from requite.metrics.figures import ServiceFigures
from requite.shell import clock

INTERVALS_S: Final = (0.2, 0.5, 1.0, 2.0, 5.0, 10.0, 30.0, 60.0)

_TICK_S: Final = 0.25
_ENDED_BY: Final = {
    signal.SIGINT: ExitCode.INTERRUPTED,
    signal.SIGTERM: ExitCode.STOPPED,
    signal.SIGHUP: ExitCode.STOPPED,
}
_KEYS: Final = (
    ("↑ ↓ PgUp PgDn Home End", "move the cursor"),
    ("Enter", "show the workers of the service"),
    ("Esc", "go back; remove the filter"),
    ("← → or < >, or a click", "sort by another column"),
    ("r", "reverse the order"),
    ("/", "show only names that have a text"),
    ("Space", "hold the display, or let it go on"),
    ("+ -", "ask more rarely, or more often"),
    ("?", "this page"),
    ("q", "quit"),
)
_MEANINGS: Final = (
    ("REQ/S", "requests accepted per second"),
    ("P50 P99", "durations, from the request to the reply"),
    ("OLDEST", "how long the oldest queued request waits"),
    ("FAIL/S", "requests that end with another status than ok"),
    ("REDEL/S", "requests whose workers were lost, given to others"),
    ("BLOCKED", "workers that do not read what they are sent"),
)


class Help(ModalScreen[None]):
    """The keys, and what the columns mean."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("escape,question_mark,q,enter,space", "dismiss", "close")
    ]

    def compose(self) -> ComposeResult:
        """Show the page."""
        text = Text()
        for title, rows in (("Keys", _KEYS), ("Columns", _MEANINGS)):
            text.append(f"{title}\n", STYLES[Tone.STRONG])
            for name, meaning in rows:
                text.append(f"  {name:<24}", STYLES[Tone.GOOD])
                text.append(f"{meaning}\n")
        text.append(
            "\nRates and durations are those of the last interval. Esc closes.", STYLES[Tone.QUIET]
        )
        yield Static(text, id="help")


class TopApp(App[ExitCode]):
    """Shows what a poller sees, until `q`. `place` is the broker's URL, without a password."""

    ENABLE_COMMAND_PALETTE = False
    TITLE = "requite top"
    CSS = """
    Screen { layout: vertical; overflow: hidden; }
    #head { height: auto; padding: 0 0 0 0; }
    #notice { height: auto; min-height: 1; max-height: 4; padding: 0 1; }
    Table { height: 1fr; scrollbar-size-vertical: 1; overflow-x: hidden; }
    #filter { height: 1; border: none; padding: 0 1; }
    #foot { height: 1; }
    Help { align: center middle; }
    #help { width: 78; height: auto; max-height: 100%; border: round $primary; padding: 0 1; }
    """
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("q", "leave", "quit"),
        Binding("ctrl+c", "interrupt", "quit", priority=True),
        Binding("question_mark", "help", "help"),
        Binding("slash", "filter", "filter"),
        Binding("space", "hold", "hold the display"),
        Binding("plus,equals_sign", "slower", "ask more rarely"),
        Binding("minus", "faster", "ask more often"),
        Binding("escape", "return", "back", priority=True),
    ]

    def __init__(self, poller: Poller, place: str) -> None:
        super().__init__(ansi_color=True)  # the terminal's own colours, or none with NO_COLOR
        self.theme = "ansi-dark"
        self._poller: Final = poller
        self._place: Final = place
        self._notices: Final = Notices()
        self._seen: Seen | None = None
        self._held: Seen | None = None
        self._is_held = False
        self._wanted = ""  # what the names of services must have
        self._head: Final = Static(id="head")
        self._notice: Final = Static(id="notice")
        self._service_table: Final = Table(SERVICES, _name_of, BUSIEST)
        self._worker_table: Final = Table(WORKERS, _address_of, BY_NAME)
        self._filter: Final = Input(placeholder="filter by name", id="filter", compact=True)
        self._foot: Final = Static(id="foot")

    async def run_until_left(self) -> int:
        """Run until the user leaves or a signal ends it; return the exit code. Log lines are shown
        below the figures, since stderr is the display."""
        loop = get_running_loop()
        for number, code in _ENDED_BY.items():
            loop.add_signal_handler(number, self.exit, code)
        with self._notices.taking_logs():
            await self.run_async()
        return ExitCode.INTERNAL if self.return_value is None else self.return_value

    def compose(self) -> ComposeResult:
        """Make the parts of the display, from the top."""
        yield self._head
        yield self._notice
        yield self._service_table
        yield self._worker_table
        yield self._filter
        yield self._foot

    def on_mount(self) -> None:
        """Begin to ask."""
        self._worker_table.display = self._filter.display = False
        self.set_focus(self._service_table)
        self.run_worker(self._follow())
        self.set_interval(_TICK_S, self._tick)
        self._draw()

    async def _follow(self) -> None:
        async for update in self._poller.updates():
            if isinstance(update, Trouble):
                self._notices.trouble(update.text)
            else:
                self._notices.answered(update)
                self._held = update
                if not self._is_held:
                    self._seen = update
            self._draw()

    def _tick(self) -> None:
        asked_at = self._poller.asked_at
        self._notices.waited(0.0 if asked_at is None else clock.now() - asked_at)
        self._draw_notice()

    # --- drawing ----------------------------------------------------------------------------------
    def _draw(self) -> None:
        if self._seen is not None:
            self._draw_seen(self._seen)
        else:
            self._head.update(text_of([[Cell(" "), Cell(self._place, Tone.STRONG)]]))
        self._draw_notice()
        self._draw_foot()

    def _draw_seen(self, seen: Seen) -> None:
        figures, service = seen.figures, self._poller.service
        rows = [row for row in figures.services if self._wanted in row.seen.name.casefold()]
        self._service_table.show(rows)
        chosen = [row for row in figures.services if service and row.seen.name == service]
        lines: list[Line]
        if chosen:
            lines = service_lines_of(chosen[0], self._place, self.size.width)
        else:
            lines = lines_of(figures, self._place, self.size.width, is_lost=self._notices.is_lost)
        if service and seen.service == service:
            self._worker_table.show(seen.workers or ())
        self._head.update(text_of(lines))

    def _draw_notice(self) -> None:
        cell = Cell("held: Space goes on", Tone.WARNING) if self._is_held else self._notices.cell()
        self._notice.update(Text(shown_text(cell), STYLES[cell.tone]))

    def _draw_foot(self) -> None:
        poller = self._poller
        about = f"every {poller.pause_s:.3g} s"
        if self._seen is not None:
            about += f", answers cost {formats.duration(self._seen.took_s)}"
        if poller.is_slowed:
            about += f": {SHARE_MAX:.0%} of its time"
        if self._wanted:
            about = f"{len(self._service_table.rows):,} with “{self._wanted}” of all, {about}"
        keys = "Esc back  ? help  q quit" if poller.service else "/ filter  ? help  q quit"
        room = self.size.width - len(keys) - 2
        line = [Cell(" " + fitted(about, max(1, room)), Tone.QUIET), Cell(keys, Tone.QUIET)]
        self._foot.update(text_of([line]))

    def on_resize(self, _event: Resize) -> None:
        """Draw anew, for the new width."""
        self._draw()

    # --- keys -------------------------------------------------------------------------------------
    def action_leave(self) -> None:
        """End."""
        self.exit(ExitCode.OK)

    def action_interrupt(self) -> None:
        """End, as Ctrl-C ends other commands."""
        self.exit(ExitCode.INTERRUPTED)

    def action_help(self) -> None:
        """Show the keys."""
        self.push_screen(Help())

    def action_hold(self) -> None:
        """Hold the display, or let it go on."""
        self._is_held = not self._is_held
        if not self._is_held:
            self._seen = self._held
        self._draw()

    def action_slower(self) -> None:
        """Ask more rarely."""
        now_s = self._poller.interval_s
        self._set_interval(min((s for s in INTERVALS_S if s > now_s), default=now_s))

    def action_faster(self) -> None:
        """Ask more often."""
        now_s = self._poller.interval_s
        self._set_interval(max((s for s in INTERVALS_S if s < now_s), default=now_s))

    def _set_interval(self, interval_s: float) -> None:
        self._poller.interval_s = interval_s
        self._poller.hurry()
        self._draw_foot()

    def action_filter(self) -> None:
        """Ask for a text that names must have."""
        if not self._poller.service:
            self._show_filter(is_shown=True)
            self.set_focus(self._filter)

    @on(Input.Changed)
    def _filter_changed(self, event: Input.Changed) -> None:
        self._wanted = event.value.casefold()
        self._draw()

    @on(Input.Submitted)
    def _close_filter(self) -> None:
        self._show_filter(is_shown=False)
        self.set_focus(self._service_table)

    def _show_filter(self, *, is_shown: bool) -> None:
        self._filter.display = is_shown
        self._foot.display = not is_shown

    @on(Table.Chosen)
    def _open(self, event: Table.Chosen) -> None:
        if not self._poller.service:
            self._turn_to(event.key)

    def action_return(self) -> None:
        """Close what is open: the help, the workers, the filter."""
        if isinstance(self.screen, Help):
            self.pop_screen()
        elif self._poller.service:
            self._turn_to("")
        else:
            self._filter.value = ""
            self._close_filter()

    def _turn_to(self, service: str) -> None:
        """Show the workers of a service, or with "" the services."""
        self._poller.service = service
        self._poller.hurry()
        self._worker_table.reset()
        self._worker_table.display = bool(service)
        self._service_table.display = not service
        self.set_focus(self._worker_table if service else self._service_table)
        self._draw()


def _name_of(row: ServiceFigures) -> str:
    return row.seen.name


def _address_of(row: WorkerRow) -> str:
    return row.address
