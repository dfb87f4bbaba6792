"""The process that audits the demo.

    python -m requite.cli.show.auditor JOURNAL LAKE REPORT SCRATCH

It loads Spark at once, at a low priority, while the show still runs; a line on stdin makes it run
the pipeline. Then it prints a line of JSON for each step, `{"step": ..., "rows": ...}`, and at last
`{"audit": {...}, "events": ..., "seconds": ..., "report": ...}`. Nothing on stdin ends it.
"""

from __future__ import annotations

import json
import os
import sys
from typing import Any, Final, TextIO

from requite.errors import RequiteError

_NICENESS: Final = 10
# The collector that is meant for long runs costs twice what it saves.
_COLLECTOR: Final = "-XX:+UseSerialGC"
_JAVA_OPTIONS: Final = "spark.driver.extraJavaOptions"


def main() -> None:
    """Do it, and say in a sentence what went wrong."""
    os.nice(_NICENESS)
    try:
        _audit(_take_stdout())
    except RequiteError as error:
        sys.exit(str(error))


def _audit(answers: TextIO) -> None:
    """Start Spark, wait for the word, run the pipeline, tell what came of it."""
    journal, lake, report, scratch = sys.argv[1:]
    # Whoever is killed while Spark starts leaves files behind: where they are cleared away.
    os.makedirs(scratch, exist_ok=True)
    os.environ["TMPDIR"] = scratch
    from requite.spark.runner import run
    from requite.spark.session import ONCE, local_session

    java = f"{ONCE[_JAVA_OPTIONS]} {_COLLECTOR}"
    conf = {_JAVA_OPTIONS: java, "spark.sql.shuffle.partitions": "2", "spark.local.dir": scratch}
    spark = local_session("requite demo", cores=2, conf=conf)
    if not sys.stdin.readline():
        return
    summary = run(
        spark,
        journal,
        lake,
        report=report,
        on_progress=lambda progress: _say(answers, progress._asdict()),
    )
    told = {"events": summary.new_events, "seconds": summary.seconds, "report": report}
    _say(answers, {"audit": summary.audit.record(), **told})


def _take_stdout() -> TextIO:
    """Keep stdout for our own lines: whatever Spark and Java print goes to stderr."""
    answers = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)
    return answers


def _say(answers: TextIO, record: dict[str, Any]) -> None:
    print(json.dumps(record), file=answers, flush=True)


if __name__ == "__main__":
    main()
