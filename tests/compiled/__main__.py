"""Test requite with the compiled core, in a short form or whole.

    python -m tests.compiled                the engines' tests, and the digests of some seeds,
                                            with a quick build, which is not optimised
    python -m tests.compiled --long         all lanes of tests, and 500 seeds of each group
    python -m tests.compiled cli e2e        only these lanes
    python -m tests.compiled --group sp     only 500 seeds of this group; it may be repeated
    python -m tests.compiled --seeds 20     only 20 seeds of each group

Without a C compiler it says so, and exits with 0.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
from collections.abc import Mapping, Sequence
from time import monotonic
from typing import Final

from tests.compiled.build import ROOT, build, lacking
from tests.lanes import CHECKS, LANES

from requite.sim.scenarios import PLUGINS

_SHORT: Final = (
    "tests/engines",
    "tests/wire",
    "tests/transcripts",
    "tests/compiled",
)
_MARKS: Final = "not nng and not long and not slow and not hypothesis"
# "compiled" is this module.
_LANES: Final = tuple(each.name for each in LANES if each.name not in ("compiled", *CHECKS))
_SEEDS_SHORT: Final = 1
_SEEDS_LONG: Final = 500


def run(arguments: Sequence[str], env: Mapping[str, str]) -> int:
    """Run a module of Python's; return its exit code."""
    command = [sys.executable, "-m", *arguments]
    return subprocess.run(command, cwd=ROOT, env=env, stdin=subprocess.DEVNULL).returncode


def compare_digests(groups: Sequence[str], seeds: int, env: Mapping[str, str]) -> list[str]:
    """Return the differences between the simulated runs of groups in both builds."""
    command = [sys.executable, "-m", "tests.compiled.digests", *groups, "--seeds", str(seeds)]
    pure, compiled = (
        subprocess.Popen(command, cwd=ROOT, env=each, stdout=subprocess.PIPE, text=True)
        for each in (os.environ, env)
    )
    named = " ".join(groups)
    lines = [each.communicate()[0].splitlines() for each in (pure, compiled)]
    if pure.returncode or compiled.returncode:
        return [f"{named}: the runs exited with {pure.returncode} and {compiled.returncode}"]
    pairs = list(zip(*lines, strict=True))
    different = [f"pure {one}, compiled {other}" for one, other in pairs if one != other]
    bad = [f"violations: {other}" for _, other in pairs if not other.endswith(" 0")]
    print(f"{named}: {len(pairs)} runs, {len(different)} differ, {len(bad)} bad", flush=True)
    return different + bad


def main(words: Sequence[str] | None = None) -> int:
    """Run the tests; return the exit code."""
    parser = argparse.ArgumentParser(
        prog="python -m tests.compiled",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("lane", nargs="*", help=f"one of {', '.join(_LANES)}")
    parser.add_argument("--long", action="store_true")
    parser.add_argument("--group", action="append", choices=PLUGINS)
    parser.add_argument("--seeds", type=int)
    asked = parser.parse_args(words)
    if reason := lacking():
        print(f"the compiled core is not tested: {reason}")
        return 0
    simulates = asked.group or asked.seeds
    short = not (asked.long or asked.lane or simulates)
    begun = monotonic()
    site = build(optimised=not short)
    print(f"built in {monotonic() - begun:.0f} s", flush=True)
    env = {**os.environ, "PYTHONPATH": str(site)}
    told = subprocess.check_output(
        [sys.executable, "-c", "import requite; print(requite.__build__)"], env=env, text=True
    )
    if told != "compiled\n":
        print(f"the build is {told.strip()}, not compiled")
        return 1
    groups = asked.group or (() if asked.lane and not simulates else PLUGINS)
    seeds = asked.seeds or (_SEEDS_SHORT if short else _SEEDS_LONG)
    # A process for all groups is quick, and a process for each tells more during a long run.
    parts = [groups] if short else [[group] for group in groups]
    differences = [line for part in parts for line in compare_digests(part, seeds, env)]
    print("\n".join(differences), flush=True)
    code = 0
    if short:
        code = run(["pytest", "-q", "-p", "no:cacheprovider", "-m", _MARKS, *_SHORT], env)
    elif lanes := asked.lane or (_LANES if asked.long else ()):
        code = run(["tests.lanes", *lanes], env)
    return code or int(bool(differences))


if __name__ == "__main__":
    sys.exit(main())
