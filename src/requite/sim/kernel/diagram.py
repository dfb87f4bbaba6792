"""A transcript as a message diagram: a column for each process, an arrow for each message.

      seconds  client-1   broker   worker-1
       0.0031      ├────────►│         │      REQUEST 0.1 to echo, 2.5 s: hello
       0.0041      │         ├────────►│      REQUEST 1, 2.499 s, attempt 1: hello
       0.0052      │         │         ●      crashes

A message is drawn at the time it is sent, whether it arrives or not.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

from requite.sim.kernel.transcript import RUN, Entry

_WIDTH_MAX: Final = 120
_GAP: Final = 2
_INDENT: Final = 10  # of the lanes: the width of the time, and a space
_LANES_MAX: Final = 8
"""With more processes the lines have no room for the messages."""


def diagram(entries: Sequence[Entry]) -> Iterator[str]:
    """Yield the lines of a diagram; it has no lanes if there are too many processes."""
    seen = dict.fromkeys(name for entry in entries for name in (entry.source, entry.sink))
    names = sorted((name for name in seen if name not in ("", RUN)), key=_rank)
    if len(names) > _LANES_MAX:
        yield from map(str, entries)
        return
    lanes = _Lanes(names)
    yield lanes.head()
    yield from map(lanes.line, entries)


def _rank(name: str) -> int:
    """Return a sort key: clients to the left, workers to the right."""
    return 0 if name.startswith("client") else 2 if name.startswith("worker") else 1


class _Lanes:
    """The column of each process."""

    def __init__(self, names: Sequence[str]) -> None:
        self._names = names
        self._width = max(map(len, names), default=0) + _GAP
        middle = self._width // 2
        self._at = {name: place * self._width + middle for place, name in enumerate(names)}

    def head(self) -> str:
        """Return the line with the names."""
        names = "".join(name.center(self._width) for name in self._names)
        return f"{'seconds':>{_INDENT - 1}} {names}".rstrip()

    def line(self, entry: Entry) -> str:
        """Return the line of a message, or of an event of a process."""
        cells = [" "] * (self._width * len(self._names))
        for place in self._at.values():
            cells[place] = "│"
        if entry.sink in self._at and entry.source in self._at:
            self._draw_arrow(cells, self._at[entry.source], self._at[entry.sink])
        elif entry.source in self._at:
            cells[self._at[entry.source]] = "●"
        text = f"{entry.at_s:{_INDENT - 1}.4f} {''.join(cells)}  {entry.short}"
        return text if len(text) <= _WIDTH_MAX else f"{text[: _WIDTH_MAX - 1]}…"

    def _draw_arrow(self, cells: list[str], source: int, sink: int) -> None:
        low, high = sorted((source, sink))
        for place in range(low + 1, high):
            cells[place] = "─"
        cells[source] = "├" if source < sink else "┤"
        if source == sink:
            cells[source] = "●"
        elif source < sink:
            cells[sink - 1], cells[sink] = "►", "│"
        else:
            cells[sink + 1], cells[sink] = "◄", "│"
