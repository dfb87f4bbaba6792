"""Run inputs of a target without the fuzzer: to examine a finding, or as a test.

python -m fuzz.again NAME FILE...
"""

from __future__ import annotations

import sys
from importlib import import_module
from pathlib import Path


def main() -> None:
    """Run each file; a finding ends the run with a traceback."""
    name, *files = sys.argv[1:]
    target = import_module(f"fuzz.{name}")
    for file in files:
        target.one_input(Path(file).read_bytes())


if __name__ == "__main__":
    main()
