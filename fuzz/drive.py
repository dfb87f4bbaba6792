"""Run one target under atheris, in this process, which atheris then ends.

    python -m fuzz.drive NAME CORPUS_DIRECTORY [libFuzzer options, such as -runs=1000]

Only requite and the target are instrumented: to instrument all that is loaded, as some targets do
when they are run by themselves, takes a quarter of a minute.
"""

from __future__ import annotations

import sys
from importlib import import_module
from pathlib import Path


def main() -> None:
    """Load the target, write its own inputs to the corpus, and fuzz."""
    import atheris

    name, corpus, *options = sys.argv[1:]
    with atheris.instrument_imports(include=["requite", "fuzz"]):
        target = import_module(f"fuzz.{name}")
    target.make_corpus(Path(corpus))
    atheris.Setup([name, corpus, *options], target.one_input)
    atheris.Fuzz()


if __name__ == "__main__":
    main()
