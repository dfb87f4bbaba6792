"""Digests of simulated runs, a line per run; equal for a compiled and a pure core.

python -m tests.compiled.digests --seeds 2 mdp sp
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator, Sequence

from requite.sim.run import run
from requite.sim.scenarios import GROUPS, PLUGINS


def digests(group: str, seeds: int) -> Iterator[str]:
    """Run the seeds of a group, whose scenarios take turns; return a line for each."""
    names = GROUPS[group]
    for seed in range(1, seeds + 1):
        scenario = names[seed % len(names)]
        result = run(seed, scenario)
        yield f"{scenario} {seed} {result.digest} {len(result.violations)}"


def main(words: Sequence[str] | None = None) -> None:
    """Print the digests of groups; of all if none is named."""
    parser = argparse.ArgumentParser(prog="python -m tests.compiled.digests", description=__doc__)
    parser.add_argument("group", nargs="*", help=f"one of {', '.join(PLUGINS)}; all if none")
    parser.add_argument("--seeds", type=int, default=1)
    asked = parser.parse_args(words)
    for group in asked.group or PLUGINS:
        for line in digests(group, asked.seeds):
            print(line, flush=True)


if __name__ == "__main__":
    main()
