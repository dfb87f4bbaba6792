"""Add new names to the saved lists: `python -m tests.saved`."""

from __future__ import annotations

import subprocess
import sys

from tests.saved.cases import INTEROP
from tests.saved.lists import LISTS
from tests.saved.names import add


def _collect() -> list[str]:
    command = ("-m", "pytest", "--collect-only", "-q", "-m", "interop", "tests/interop")
    done = subprocess.run([sys.executable, *command], stdout=subprocess.PIPE, text=True, check=True)
    return [line for line in done.stdout.splitlines() if "::" in line]


def main() -> int:
    """Update the lists and print the new names; return the exit status."""
    for name, current in {**LISTS, INTEROP: _collect}.items():
        for each in add(name, current()):
            print(f"{name}: {each}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
