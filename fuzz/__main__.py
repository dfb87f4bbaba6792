"""Run the fuzz targets, each in its own process and for a limited number of inputs.

    python -m fuzz                            all targets
    python -m fuzz --runs 5000000 fuzz_zmtp   one target, with more inputs
    python -m fuzz --list                     list the targets

A target is a file `fuzz_*.py` in this folder with `one_input(data)`, which raises or fails an
assertion on a finding, and `make_corpus(directory)`. An input with a finding is stored in
`fuzz/findings/`, and the command to run it again is printed. Exit code 0: no findings.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path
from tempfile import TemporaryDirectory
from time import monotonic
from typing import Final

FOLDER: Final = Path(__file__).parent
FINDINGS: Final = FOLDER / "findings"
RUNS: Final = 100_000
# An input that takes longer is a finding, too: processing is not linear in the size of the input.
INPUT_TIMEOUT_S: Final = 5


def targets() -> dict[str, str]:
    """Return the names of all targets, with the first line of their docstrings."""
    found = {}
    for path in sorted(FOLDER.glob("fuzz_*.py")):
        found[path.stem] = path.read_text(encoding="utf-8").split('"""')[1].splitlines()[0]
    return found


def main(arguments: list[str] | None = None) -> int:
    """Run the chosen targets; return the exit code."""
    known = targets()
    parser = argparse.ArgumentParser(prog="python -m fuzz", description="Fuzz requite's readers.")
    parser.add_argument("names", nargs="*", metavar="NAME", help="targets (all)")
    parser.add_argument("--runs", type=int, default=RUNS, help=f"inputs per target ({RUNS})")
    parser.add_argument("--list", action="store_true", help="list the targets, and exit")
    asked = parser.parse_args(arguments)
    if unknown := set(asked.names) - set(known):
        parser.error(f"no target {', '.join(sorted(unknown))}; the targets are {', '.join(known)}")
    if asked.list:
        print("\n".join(f"{name:<24}{about}" for name, about in known.items()))
        return 0
    if find_spec("atheris") is None:
        print("fuzz: atheris is not installed here; `make fuzz` installs it", file=sys.stderr)
        return 2
    outcomes = [run(name, asked.runs) for name in asked.names or known]
    return 0 if all(outcomes) else 1


def run(name: str, runs: int) -> bool:
    """Run a target, and print the result; return whether it has no findings."""
    FINDINGS.mkdir(exist_ok=True)
    (FINDINGS / ".gitignore").write_text("*\n")
    began = monotonic()
    with TemporaryDirectory() as corpus:
        done = subprocess.run(
            [sys.executable, "-m", "fuzz.drive", name, corpus, *_options(name, runs)],
            cwd=FOLDER.parent,
            capture_output=True,
            text=True,
            errors="replace",
            check=False,
        )
    verdict = "nothing found" if done.returncode == 0 else "FOUND SOMETHING"
    print(f"{name:<24}{runs:>9} inputs {monotonic() - began:7.1f} s  {verdict}", flush=True)
    if done.returncode:
        _explain(name, done.stdout + done.stderr)
    return done.returncode == 0


def _options(name: str, runs: int) -> list[str]:
    return [
        f"-runs={runs}",
        f"-timeout={INPUT_TIMEOUT_S}",
        f"-artifact_prefix={FINDINGS}/{name}-",
        "-print_final_stats=0",
        "-verbosity=0",
    ]


def _explain(name: str, output: str) -> None:
    print(output, file=sys.stderr)
    for path in sorted(FINDINGS.glob(f"{name}-*")):
        shown = path.relative_to(FOLDER.parent)
        print(f"again: {Path(sys.executable).name} -m fuzz.again {name} {shown}", file=sys.stderr)


if __name__ == "__main__":
    sys.exit(main())
