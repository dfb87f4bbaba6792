"""Plans that once violated an invariant; `known_bad_plans.txt` lists them.

    python -m tests.sim.plans        report which plans run differently than when they were saved

To save the plan of a bad seed, run
`requite sim --seed N --scenario NAME --write-plan tests/sim/plans/NAME-N.toml` and add a line.
"""

from __future__ import annotations

from pathlib import Path
from typing import Final, NamedTuple

from requite.sim.kernel.plan import Plan
from requite.sim.run import play, read_plan

FOLDER: Final = Path(__file__).parent / "plans"
LIST: Final = FOLDER.with_name("known_bad_plans.txt")
NO_ENGINE: Final = "-"


class Known(NamedTuple):
    """A line of the list. `engine` is the key of the broken engine that the plan finds."""

    name: str
    calls: int
    digest: str
    engine: str
    about: str

    def plan(self) -> Plan:
        """Read the plan."""
        file = FOLDER / f"{self.name}.toml"
        return read_plan(file.read_text("utf-8"), file.name)


def known() -> list[Known]:
    """Read the list."""
    lines = [line for line in LIST.read_text("utf-8").splitlines() if not line.startswith("#")]
    rows = (line.split(maxsplit=4) for line in lines)
    return [Known(name, int(calls), *words) for name, calls, *words in rows]


if __name__ == "__main__":
    for each in known():
        print(each.name, "as saved" if play(each.plan()).digest == each.digest else "otherwise")
