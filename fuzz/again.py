"""Run inputs of a target once more, without the fuzzer: to see what one has found, or as a test.

python -m fuzz.again NAME FILE...
"""

from __future__ import annotations

import sys
from importlib import import_module
from pathlib import Path


def main() -> None:
    """Run each file; an input that finds something ends it with a traceback."""
    name, *files = sys.argv[1:]
    target = import_module(f"fuzz.{name}")
    for file in files:
        target.one_input(Path(file).read_bytes())


if __name__ == "__main__":
    main()
