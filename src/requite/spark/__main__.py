"""The pipeline without the packages of the command line, for `spark-submit` on a cluster.

    python -m requite.spark pack DIR      write requite.zip and requite_submit.py
    spark-submit --py-files requite.zip requite_submit.py run --journal DIR --lake DIR
    spark-submit --py-files requite.zip requite_submit.py sweep --seeds N

Set master, resources and packages with `spark-submit`. `--master`, `--conf`, `--heap` and
`--partitions` after the verb work as in `requite spark`; what `spark-submit` has fixed by then
stays. The last line of stdout is a JSON object. Exit code 1: the audit or the sweep found
something, or the lake or Spark failed; 2: invalid arguments.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from requite.errors import ConfigurationError, LakeError, SparkFailed, StorageError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from requite.spark.refresh import Progress

OK, FOUND, USAGE = 0, 1, 2
_APP: Final = "requite"


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a verb; return the exit code."""
    options = _parser().parse_args(arguments)
    try:
        code: int = options.verb(options)
    except ConfigurationError as error:
        print(f"requite: {error}", file=sys.stderr, flush=True)
        return USAGE
    except (LakeError, SparkFailed, StorageError) as error:
        print(f"requite: {error}", file=sys.stderr, flush=True)
        return FOUND
    return code


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="requite.spark", description="requite on a Spark cluster")
    verbs = parser.add_subparsers(required=True, metavar="VERB")
    settings = argparse.ArgumentParser(add_help=False)
    settings.add_argument("--master", help="Spark master, unless spark-submit sets it")
    settings.add_argument("--conf", action="append", help="Spark setting: NAME=VALUE")
    settings.add_argument("--heap", help="Java heap of each executor, such as 4g")
    settings.add_argument("--partitions", type=int, help="number of tasks per shuffle")
    run = verbs.add_parser(
        "run", help="ingest a journal into a lake, and audit it", parents=[settings]
    )
    run.add_argument(
        "--journal", required=True, help="the journal, as a path that executors can read"
    )
    run.add_argument("--lake", required=True, help="the folder of the tables")
    run.add_argument("--report", type=Path, help="write the report to this file")
    run.set_defaults(verb=_run)
    sweep = verbs.add_parser("sweep", help="run seeds of the simulator", parents=[settings])
    sweep.add_argument("--seeds", type=int, default=1000)
    sweep.add_argument("--first-seed", type=int, default=0)
    sweep.add_argument(
        "--scenario", nargs="+", default=["swarm"], help="scenarios, in turn; or all"
    )
    sweep.add_argument("--seed-timeout", type=float, default=60.0)
    sweep.add_argument("--to", type=Path, help="append to the tables in this folder")
    sweep.set_defaults(verb=_sweep)
    pack = verbs.add_parser("pack", help="write the files that spark-submit needs")
    pack.add_argument("folder", type=Path)
    pack.set_defaults(verb=_pack)
    return parser


def _run(options: argparse.Namespace) -> int:
    from requite.spark import register, runner

    spark = _session(options)
    register(spark)
    summary = runner.run(
        spark,
        options.journal,
        options.lake,
        report=options.report,
        on_progress=_show,
    )
    _print_json(summary.record())
    return OK if summary.audit.ok and summary.audit.complete else FOUND


def _sweep(options: argparse.Namespace) -> int:
    from requite.sim.kernel.sandboxed import Limits
    from requite.spark.sweep.runs import find_scenarios, sweep

    scenarios = find_scenarios(options.scenario)
    if options.seeds < 1 or options.first_seed < 0:
        raise ConfigurationError("--seeds must be at least 1, and --first-seed at least 0")
    total = sweep(
        _session(options),
        first_seed=options.first_seed,
        seeds=options.seeds,
        scenarios=scenarios,
        to=options.to,
        limits=Limits(run_s=options.seed_timeout),
    )
    _print_json(total.record())
    return OK if total.is_clean else FOUND


def _pack(options: argparse.Namespace) -> int:
    from requite.spark.packing import pack

    for path in pack(options.folder):
        print(path)
    return OK


def _show(progress: Progress) -> None:
    if progress.rows is not None:
        print(f"requite: {progress.step}: {progress.rows:,}", file=sys.stderr, flush=True)


def _session(options: argparse.Namespace) -> SparkSession:
    from requite.spark.session import Settings, open_session

    given = (options.master, options.conf, options.heap, options.partitions)
    return open_session(_APP, Settings.from_options(*given))


def _print_json(record: dict[str, Any]) -> None:
    print(json.dumps(record), flush=True)


if __name__ == "__main__":
    sys.exit(main())
