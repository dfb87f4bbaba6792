"""The builds of requite that are measured: this environment's, and that of another one beside it.

All benchmarks have `--beside PYTHON`: in each round, requite's brokers and peers then run with this
interpreter, and also with PYTHON, which has the other build. Contenders of the pure build have
", pure" behind their names.
"""

from __future__ import annotations

import argparse
import os
import shlex
import subprocess
import sys
from collections.abc import Sequence
from typing import Final, NamedTuple

import requite

COMPILED: Final = "compiled"
PURE: Final = "pure"
_ASK: Final = "import requite; print(requite.__build__, requite.__version__)"


class Build(NamedTuple):
    """An interpreter, and the build ("compiled" or "pure") and version of its requite."""

    python: str
    kind: str
    version: str

    def name(self, contender: str) -> str:
        """Return the name of a contender in this build."""
        return named(contender, self.kind)

    def command(self, *arguments: str) -> list[str]:
        """Return the command line of `requite` in this build."""
        return [self.python, "-m", "requite.cli", *arguments]


def named(contender: str, kind: str) -> str:
    """Return the name of a contender in a build."""
    return contender if kind == COMPILED else f"{contender}, {kind}"


KINDS: Final = tuple(Build(sys.executable, kind, "") for kind in (COMPILED, PURE))
"""Stand-ins for both builds, to list the names of contenders."""
THIS: Final = Build(sys.executable, requite.__build__, requite.__version__)


def add_option(parser: argparse.ArgumentParser) -> None:
    """Add `--beside`; its value is a list of builds, for `all_of`."""
    parser.add_argument(
        "--beside",
        type=_beside,
        metavar="PYTHON",
        help=f"measure also the other build, of this environment's Python; here is the {THIS.kind}",
    )


def all_of(given: argparse.Namespace) -> Sequence[Build]:
    """Return the builds to measure: this one first."""
    return [THIS] if given.beside is None else [THIS, given.beside]


def describe(builds: Sequence[Build]) -> str:
    """Return version and builds in words."""
    return f"{builds[0].version} ({' and '.join(build.kind for build in builds)})"


def shown(module: str, arguments: Sequence[str]) -> str:
    """Return the command line of a benchmark, without the place of the other environment."""
    words = [
        "PYTHON" if before == "--beside" else word
        for before, word in zip(["", *arguments], arguments, strict=False)
    ]
    return shlex.join(["python", "-m", module, *words])


def _beside(path: str) -> Build:
    python = os.path.abspath(path)  # no resolved link: the environment is where the link is
    try:
        done = subprocess.run([python, "-c", _ASK], capture_output=True, text=True, check=True)
    except (OSError, subprocess.CalledProcessError) as error:
        raise argparse.ArgumentTypeError(f"{path} has no requite: {error}") from None
    build = Build(python, *done.stdout.split())
    if build.kind == THIS.kind:
        raise argparse.ArgumentTypeError(f"{path} has a {build.kind} build, too")
    if build.version != THIS.version:
        raise argparse.ArgumentTypeError(
            f"{path} has requite {build.version}, and this environment {THIS.version}"
        )
    return build
