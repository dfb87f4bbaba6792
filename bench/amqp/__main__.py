"""The command line: `python -m bench.amqp --help`."""

from __future__ import annotations

import argparse
import signal
import sys
from collections.abc import Sequence
from importlib import import_module
from pathlib import Path
from typing import Final

import bench.amqp
from bench import builds, quiet
from requite.testing import rabbitmq

MEASUREMENTS: Final = ("calls", "law", "start", "groups")


def main(arguments: Sequence[str]) -> int:
    """Measure and report; return 1 if a measurement failed."""
    given = parse(arguments)
    if (lack := rabbitmq.unavailable()) is not None:
        print(lack, file=sys.stderr)
        return 1
    from bench.amqp.turns import shared_rabbit

    how = f"Made by `{builds.shown('bench.amqp', arguments)}`"
    with shared_rabbit() as server:
        failures = [
            failure
            for name in MEASUREMENTS
            if name in given.measurement
            for failure in import_module(f"bench.amqp.{name}").run(server, given, how)
        ]
    for failure in failures:
        print(f"\n{failure}", file=sys.stderr)
    return 1 if failures else 0


def parse(arguments: Sequence[str]) -> argparse.Namespace:
    """Read the command line; `--quick` shortens all measurements."""
    parser = argparse.ArgumentParser(prog="python -m bench.amqp", description=bench.amqp.__doc__)
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.add_argument("measurement", nargs="*", help=f"some of {', '.join(MEASUREMENTS)} (all)")
    parser.add_argument("--quick", action="store_true", help="few and short turns")
    parser.add_argument("--rounds", type=int, help="turns per contender (3)")
    parser.add_argument("--seconds", type=float, help="measured time of a turn (1)")
    parser.add_argument(
        "--only", nargs="+", default=[], metavar="TEXT", help="only contenders with TEXT"
    )
    parser.add_argument(
        "--docs", type=Path, metavar="DIR", help="folder of the documentation to write to"
    )
    builds.add_option(parser)
    quiet.add_option(parser)
    given = parser.parse_args(arguments)
    unknown = set(given.measurement) - set(MEASUREMENTS)
    if unknown:
        parser.error(f"no such measurement: {', '.join(sorted(unknown))}")
    given.measurement = given.measurement or list(MEASUREMENTS)
    given.rounds = given.rounds or (1 if given.quick else 3)
    given.seconds = given.seconds or (0.3 if given.quick else 1.0)
    return given


def _leave(*_: object) -> None:
    sys.exit(1)


if __name__ == "__main__":
    signal.signal(signal.SIGTERM, _leave)  # so that RabbitMQ and the workers end as well
    sys.exit(main(sys.argv[1:]))
