"""The process that audits the demo.

    python -m requite.cli.show.auditor JOURNAL LAKE REPORT SCRATCH

It starts Spark at a low priority while the demo runs. A line on stdin starts the pipeline; the end
of stdin ends the process. It prints a line of JSON for each step, `{"step": ..., "rows": ...}`, and
at last `{"audit": {...}, "events": ..., "seconds": ..., "report": ...}`.
"""

from __future__ import annotations

import json
import os
import sys
from typing import Any, Final, TextIO

from requite.errors import RequiteError

_NICENESS: Final = 10
# In a short run, the default collector costs twice what it saves.
_COLLECTOR: Final = "-XX:+UseSerialGC"
_JAVA_OPTIONS: Final = "spark.driver.extraJavaOptions"


def main() -> None:
    """Run the audit; exit with a sentence if it fails."""
    os.nice(_NICENESS)
    try:
        _audit(_take_stdout())
    except RequiteError as error:
        sys.exit(str(error))


def _audit(answers: TextIO) -> None:
    """Start Spark, wait for a line on stdin, run the pipeline, print its result."""
    journal, lake, report, scratch = sys.argv[1:]
    # Spark leaves files behind if it is killed while it starts: in a folder that `clear` removes.
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
    totals = {"events": summary.new_events, "seconds": summary.seconds, "report": report}
    _say(answers, {"audit": summary.audit.record(), **totals})


def _take_stdout() -> TextIO:
    """Return stdout; the output of Spark and Java goes to stderr from now on."""
    answers = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)
    return answers


def _say(answers: TextIO, record: dict[str, Any]) -> None:
    print(json.dumps(record), file=answers, flush=True)


if __name__ == "__main__":
    main()
