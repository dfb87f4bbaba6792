"""Test requite with the compiled core, in a short form or whole.

    python -m tests.compiled           the engines' tests, and the digests of some simulated runs
    python -m tests.compiled --long    all tests that need no compiler, and 500 seeds of each group

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

_SHORT: Final = ("tests/engines", "tests/wire", "tests/framing", "tests/transcripts")
_LONG: Final = ("tests",)
_SEEDS_SHORT: Final = 2
_SEEDS_LONG: Final = 500


def run_tests(folders: Sequence[str], marks: str, env: Mapping[str, str]) -> int:
    """Run the tests in these folders; return pytest's exit code."""
    options = ("-q", "-p", "no:cacheprovider", "-m", marks)
    command = [sys.executable, "-m", "pytest", *options, *folders]
    return subprocess.run(command, cwd=ROOT, env=env, stdin=subprocess.DEVNULL).returncode


def compare_digests(seeds: int, env: Mapping[str, str]) -> list[str]:
    """Return the differences between the simulated runs of both builds."""
    command = [sys.executable, "-m", "tests.compiled.digests", "--seeds", str(seeds)]
    pure, compiled = (
        subprocess.Popen(command, cwd=ROOT, env=each, stdout=subprocess.PIPE, text=True)
        for each in (os.environ, env)
    )
    lines = [each.communicate()[0].splitlines() for each in (pure, compiled)]
    if pure.returncode or compiled.returncode:
        return [f"the runs exited with {pure.returncode} and {compiled.returncode}"]
    print(f"{len(lines[0])} simulated runs")
    pairs = zip(*lines, strict=True)
    return [f"pure {one}, compiled {other}" for one, other in pairs if one != other]


def main(words: Sequence[str] | None = None) -> int:
    """Run the tests; return the exit code."""
    parser = argparse.ArgumentParser(prog="python -m tests.compiled", description=__doc__)
    parser.add_argument("--long", action="store_true")
    asked = parser.parse_args(words)
    if reason := lacking():
        print(f"the compiled core is not tested: {reason}")
        return 0
    begun = monotonic()
    site = build()
    print(f"built in {monotonic() - begun:.0f} s", flush=True)
    env = {**os.environ, "PYTHONPATH": str(site)}
    told = subprocess.check_output(
        [sys.executable, "-c", "import requite; print(requite.__build__)"], env=env, text=True
    )
    if told != "compiled\n":
        print(f"the build is {told.strip()}, not compiled")
        return 1
    folders, marks, seeds = (
        (_LONG, "not nng and not long", _SEEDS_LONG)
        if asked.long
        else (_SHORT, "not nng and not long and not slow and not hypothesis", _SEEDS_SHORT)
    )
    differences = compare_digests(seeds, env)
    print("\n".join(differences))
    code = run_tests(folders, marks, env)
    return code or int(bool(differences))


if __name__ == "__main__":
    sys.exit(main())
