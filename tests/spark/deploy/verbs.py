"""What spark-submit runs in a test: where requite is, and a verb, in one application.

    spark-submit --py-files requite.zip verbs.py FILE PROGRAM VERB...

Writes to FILE from where driver and executors have requite, as JSON. Then it becomes PROGRAM, what
`pack` writes for spark-submit: the start of an application is what takes time.
"""

from __future__ import annotations

import json
import runpy
import sys
from collections.abc import Iterator
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


def main(file: str, *command: str) -> None:
    Path(file).write_text(json.dumps(places()))
    sys.argv = list(command)
    runpy.run_path(command[0], run_name="__main__")


if __name__ == "__main__":
    main(*sys.argv[1:])
