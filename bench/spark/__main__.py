"""`python -m bench.spark WHAT`: run one of the measurements on Spark."""

from __future__ import annotations

import sys
from importlib import import_module
from typing import Final

import bench.spark

MEASUREMENTS: Final = {
    "bulk": "bench.spark.bulk",
    "source": "bench.spark.source",
    "pipeline": "bench.spark.pipeline",
}


def main(arguments: list[str]) -> int:
    """Run the named measurement with the rest of the command line."""
    if not arguments or arguments[0] not in MEASUREMENTS:
        print(bench.spark.__doc__)
        return int(bool(arguments) and arguments[0] not in ("-h", "--help"))
    measurement = import_module(MEASUREMENTS[arguments[0]])
    return int(measurement.main(arguments[1:]))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
