"""What spark-submit runs in a test: several verbs in one application, whose start is what costs.

    spark-submit --py-files requite.zip verbs.py FOLDER PROGRAM VERB... [-- VERB...]

Writes to FOLDER/places from where driver and executors have requite, as JSON. Then it runs PROGRAM,
what `pack` writes for spark-submit, once for each verb, and ends as the last one does. What the
others print goes to FOLDER/verb-0, FOLDER/verb-1 and so on, and their exit codes are the last lines
of that.
"""

from __future__ import annotations

import json
import runpy
import sys
from collections.abc import Iterator
from contextlib import redirect_stdout
from pathlib import Path
from typing import Any

import pyarrow as pa
from pyspark.sql import SparkSession

import requite


def tell(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Tell which file the executor's requite is."""
    import requite

    for _ in batches:
        yield pa.RecordBatch.from_pydict({"place": [requite.__file__]})


def places() -> dict[str, Any]:
    """Return where requite is, on the driver and on the executors."""
    spark = SparkSession.builder.getOrCreate()
    told: Any = spark.range(4, numPartitions=4).mapInArrow(tell, "place string").collect()
    return {"driver": requite.__file__, "executors": sorted({row.place for row in told})}


def split(words: list[str]) -> Iterator[list[str]]:
    """Yield the words between those that are `--`."""
    while "--" in words:
        end = words.index("--")
        yield words[:end]
        words = words[end + 1 :]
    yield words


def main(folder: Path, program: str, *words: str) -> None:
    (folder / "places").write_text(json.dumps(places()))
    *verbs, last = split(list(words))
    for number, verb in enumerate(verbs):
        with (folder / f"verb-{number}").open("w") as out, redirect_stdout(out):
            print(run(program, verb))
    sys.exit(run(program, last))


def run(program: str, verb: list[str]) -> Any:
    """Run a verb as spark-submit would; return its exit code."""
    sys.argv = [program, *verb]
    try:
        runpy.run_path(program, run_name="__main__")
    except SystemExit as end:
        return end.code
    raise AssertionError("the program has no exit code")


if __name__ == "__main__":
    main(Path(sys.argv[1]), *sys.argv[2:])
