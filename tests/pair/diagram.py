"""The state diagram of a pair, drawn from the table of its state machine.

python -m tests.pair.diagram        regenerates docs/topics/patterns/binary-star.svg
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator
from html import escape
from pathlib import Path
from typing import Final, NamedTuple

from requite.protocols.binarystar.table import TABLE, Event, State

DRAWING: Final = Path(__file__).parents[2] / "docs" / "topics" / "patterns" / "binary-star.svg"

_WIDTH, _HEIGHT = 1080, 640
_BOX_WIDTH, _BOX_HEIGHT = 128, 40
_LINE_HEIGHT = 15

_AT: Final = {
    State.PRIMARY: (150, 60),
    State.BACKUP: (930, 60),
    State.ACTIVE: (150, 310),
    State.PASSIVE: (930, 310),
    State.SUSPENDED: (150, 570),
    State.RESIGNED: (540, 400),
    State.FAILED: (930, 570),
}
_STARTS: Final = (State.PRIMARY, State.BACKUP)


class Bend(NamedTuple):
    """The curve of an arrow. `aside`: the distance of its midpoint from the straight line; positive
    is to the left, seen from the arrow's start. `words_at`: the position of the label along the
    arrow, 0 to 1."""

    aside: float
    words_at: float = 0.5


_BENDS: Final = {
    (State.PRIMARY, State.PASSIVE): Bend(-20, 0.2),
    (State.BACKUP, State.ACTIVE): Bend(20, 0.2),
    (State.ACTIVE, State.PASSIVE): Bend(10, 0.6),
    (State.PASSIVE, State.ACTIVE): Bend(-60, 0.5),
    (State.ACTIVE, State.SUSPENDED): Bend(40),
    (State.SUSPENDED, State.ACTIVE): Bend(60),
    (State.ACTIVE, State.RESIGNED): Bend(-20, 0.62),
    (State.RESIGNED, State.ACTIVE): Bend(-20, 0.45),
    (State.RESIGNED, State.PASSIVE): Bend(-20, 0.45),
    (State.SUSPENDED, State.PASSIVE): Bend(-60, 0.5),
    (State.SUSPENDED, State.FAILED): Bend(0, 0.4),
    (State.ACTIVE, State.FAILED): Bend(-70, 0.68),
}
_STRAIGHT: Final = Bend(0)

_WORDS: Final = {
    Event.PEER_PRIMARY: "peer starts",
    Event.PEER_BACKUP: "peer starts",
    Event.OLDER_ACTIVE: "peer active",
    Event.EQUAL_ACTIVE: "peer active, same epoch",
    Event.NEWER_ACTIVE: "peer active, newer epoch",
    Event.PEER_PASSIVE: "peer passive",
    Event.EQUAL_PASSIVE: "peer passive, same epoch",
    Event.OLDER_SUSPENDED: "peer suspended, older epoch",
    Event.EQUAL_SUSPENDED: "peer suspended, same epoch",
    Event.NEWER_SUSPENDED: "peer suspended, newer epoch",
    Event.OLDER_RESIGNED: "peer resigned, older epoch",
    Event.NEWER_RESIGNED: "peer resigned, newer epoch",
    Event.CLIENT_REQUEST: "client request",
    Event.CLIENT_VOTE: "client vote",
    Event.SWITCH: "switch",
    Event.SEIZE: "switch, peer silent",
    Event.STALL: "stood still",
}
# Where the epochs make no difference, one label replaces several.
_TOGETHER: Final = (
    ({Event.OLDER_ACTIVE, Event.EQUAL_ACTIVE, Event.NEWER_ACTIVE}, "peer active"),
    ({Event.OLDER_RESIGNED, Event.NEWER_RESIGNED}, "peer resigned"),
    ({Event.PEER_PASSIVE, Event.EQUAL_PASSIVE}, "peer passive"),
)

_STYLE: Final = """\
text { font: 13px sans-serif; fill: #222; text-anchor: middle; }
.name { font-weight: bold; font-size: 15px; }
.box { stroke: #444; stroke-width: 1.5; fill: #f4d7d7; }
.start { fill: #eee; }
.serves { fill: #cfe8cf; }
.failed { fill: #444; } .failed + text { fill: #fff; }
.arrow { fill: none; stroke: #666; stroke-width: 1.4; marker-end: url(#head); }
.halo { stroke: #fff; stroke-width: 7px; paint-order: stroke; stroke-linejoin: round; }"""


def draw() -> str:
    """Return the diagram as SVG."""
    groups: dict[tuple[State, State], set[Event]] = {}
    for (state, event), (following, _) in TABLE.items():
        if following is not state:
            groups.setdefault((state, following), set()).add(event)
    arrows = [_arrow(*ends) for ends in groups]
    words = [line for ends, events in groups.items() for line in _label(ends, events)]
    boxes = [_box(state) for state in State]
    title = "The states of one server of a pair"
    return "\n".join(
        [
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {_WIDTH} {_HEIGHT}">',
            f"<title>{title}</title>",
            f"<style>{_STYLE}</style>",
            '<defs><marker id="head" viewBox="0 0 10 10" refX="9" refY="5" markerWidth="7"'
            ' markerHeight="7" orient="auto"><path d="M0 0 L10 5 L0 10 z" fill="#666"/></marker>'
            "</defs>",
            f'<rect width="{_WIDTH}" height="{_HEIGHT}" fill="#fff"/>',
            *arrows,
            *boxes,
            *words,
            "</svg>",
            "",
        ]
    )


def words_for(events: set[Event]) -> list[str]:
    """Return the lines of an arrow's label."""
    left = set(events)
    words = []
    for together, word in _TOGETHER:
        if together <= left:
            left -= together
            words.append(word)
    return [*dict.fromkeys(_WORDS[event] for event in Event if event in left), *words]


def _box(state: State) -> str:
    x, y = _AT[state]
    kind = {State.ACTIVE: " serves", State.FAILED: " failed"}.get(
        state, " start" if state in _STARTS else ""
    )
    left, top = x - _BOX_WIDTH / 2, y - _BOX_HEIGHT / 2
    return (
        f'<rect class="box{kind}" x="{left:g}" y="{top:g}" width="{_BOX_WIDTH}"'
        f' height="{_BOX_HEIGHT}" rx="8"/>'
        f'<text class="name" x="{x}" y="{y + 5}">{state.name}</text>'
    )


def _arrow(source: State, sink: State) -> str:
    middle = _middle(source, sink)
    (x1, y1), (x2, y2) = _edge(source, middle), _edge(sink, middle)
    cx, cy = middle
    return f'<path class="arrow" d="M{x1:.0f} {y1:.0f} Q{cx:.0f} {cy:.0f} {x2:.0f} {y2:.0f}"/>'


def _label(ends: tuple[State, State], events: set[Event]) -> Iterator[str]:
    lines = words_for(events)
    x, y = _point_on_curve(ends, _BENDS.get(ends, _STRAIGHT).words_at)
    top = y - _LINE_HEIGHT * (len(lines) - 1) / 2 + 4
    for i, line in enumerate(lines):
        at = f'x="{x:.0f}" y="{top + i * _LINE_HEIGHT:.0f}"'
        yield f'<text class="halo" {at}>{escape(line)}</text>'


def _middle(source: State, sink: State) -> tuple[float, float]:
    """Return the control point of an arrow's curve."""
    (x1, y1), (x2, y2) = _AT[source], _AT[sink]
    length = ((x2 - x1) ** 2 + (y2 - y1) ** 2) ** 0.5
    aside = 2 * _BENDS.get((source, sink), _STRAIGHT).aside / length
    return (x1 + x2) / 2 + (y2 - y1) * aside, (y1 + y2) / 2 - (x2 - x1) * aside


def _point_on_curve(ends: tuple[State, State], t: float) -> tuple[float, float]:
    points: Iterable[tuple[float, float]] = (_AT[ends[0]], _middle(*ends), _AT[ends[1]])
    weights = ((1 - t) ** 2, 2 * t * (1 - t), t**2)
    pairs = list(zip(points, weights, strict=True))
    return sum(p[0] * w for p, w in pairs), sum(p[1] * w for p, w in pairs)


def _edge(state: State, towards: tuple[float, float]) -> tuple[float, float]:
    """Return the point where the line from a box's centre to `towards` crosses the box's edge."""
    x, y = _AT[state]
    dx, dy = towards[0] - x, towards[1] - y
    reach = min(
        (_BOX_WIDTH / 2 + 3) / abs(dx) if dx else float("inf"),
        (_BOX_HEIGHT / 2 + 3) / abs(dy) if dy else float("inf"),
    )
    return x + dx * reach, y + dy * reach


def main() -> int:
    """Write the diagram to `DRAWING`; return the exit status."""
    DRAWING.write_text(draw(), encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
