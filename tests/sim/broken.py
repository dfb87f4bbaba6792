"""Measure which seeds find the engines of `mutant_table.py`, and write `broken_engines.txt`.

    python -m tests.sim.broken              measure all engines
    python -m tests.sim.broken NAME ...     measure the named engines

Rows are never removed: remove the row of a deleted engine by hand, or `test_broken.py` fails.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable
from concurrent.futures import ProcessPoolExecutor
from typing import Final

from tests.sim.finding import SEEDS, TABLE, Row, table
from tests.sim.mutant_table import BROKEN

_SEEDS_MAX: Final = 1000
_HEAD: Final = """\
# Broken engines and the seeds that find them. Written by python -m tests.sim.broken.
# Columns: part of the simulator; invariant; engine; scenario; a seed that finds the engine; number
# of the seeds 1 to 20 that find it.
"""


def measure(place: int) -> Row:
    """Run the seeds of `BROKEN[place]`; return its row."""
    broken = BROKEN[place]
    events = {seed: broken.events(seed) for seed in SEEDS}
    found = {seed: number for seed, number in events.items() if number}
    quickest = min(found, key=found.__getitem__, default=0)
    seed = quickest or next(filter(broken.events, range(SEEDS.stop, _SEEDS_MAX)), 0)
    if not seed:
        raise SystemExit(
            f"{broken.key}: none of {_SEEDS_MAX - 1} seeds of {broken.scenario} finds it"
        )
    return Row(broken.scenario, seed, len(found))


def render(rows: dict[tuple[str, str, str], Row]) -> str:
    """Return the rows as text, in the order of `BROKEN`."""
    order = {broken.key: place for place, broken in enumerate(BROKEN)}
    lines = [
        " ".join(f"{word!s:<{width}}" for word, width in zip((*key, *row), _WIDTHS, strict=True))
        for key, row in sorted(rows.items(), key=lambda item: order.get(item[0], len(order)))
    ]
    return _HEAD + "".join(f"{line.rstrip()}\n" for line in lines)


_WIDTHS: Final = (11, 17, 36, 19, 3, 2)


def main(names: Iterable[str]) -> int:
    """Measure all engines, or the named ones; return the exit status."""
    wanted = set(names)
    places = [i for i, broken in enumerate(BROKEN) if not wanted or broken.name in wanted]
    rows = dict(table()) if TABLE.exists() else {}
    with ProcessPoolExecutor() as pool:
        for place, row in zip(places, pool.map(measure, places), strict=True):
            broken = BROKEN[place]
            print(*broken.key, row, "" if rows.get(broken.key) == row else "new", flush=True)
            rows[broken.key] = row
            TABLE.write_text(render(rows), "utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
