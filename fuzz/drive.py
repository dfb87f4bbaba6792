"""Run one target under atheris, which ends this process.

    python -m fuzz.drive NAME CORPUS_DIRECTORY [libFuzzer options, such as -runs=1000]

Only requite and the target are instrumented. Instrumenting all imported modules takes 15 seconds.
"""

from __future__ import annotations

import sys
from importlib import import_module
from pathlib import Path


def main() -> None:
    """Import the target, write its inputs to the corpus, and fuzz."""
    import atheris

    name, corpus, *options = sys.argv[1:]
    with atheris.instrument_imports(include=["requite", "fuzz"]):
        target = import_module(f"fuzz.{name}")
    target.make_corpus(Path(corpus))
    atheris.Setup([name, corpus, *options], target.one_input)
    atheris.Fuzz()


if __name__ == "__main__":
    main()
