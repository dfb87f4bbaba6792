"""The application that tests run by spark-submit: three steps, because its start takes long.

    spark-submit --py-files requite.zip application.py FOLDER SERVICE PROGRAM VERB...

1. Writes to FOLDER/places from which files the driver and the executors import requite.
2. Makes bulk calls to SERVICE, and to the service `once` of the same broker. In each, one task
   crashes after it has all replies, so Spark retries it. Another one sleeps, so Spark starts a
   speculative copy. Writes the rows, their ids and the effects to FOLDER/calls.
3. Runs PROGRAM, which `pack` writes for spark-submit.

Executors cannot import this file, so its functions are sent to them by value.
"""

from __future__ import annotations

import json
import os
import runpy
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

import requite.spark
from requite.spark.bulk import calls as bulk
from requite.spark.session import configure

ROWS, PARTITIONS = 40, 4
CRASHING, SLEEPING = 0, 1
SLEEP_S = 3600
SPECULATION: Final = {
    "spark.speculation": "true",
    "spark.speculation.interval": "100ms",
    "spark.speculation.quantile": "0.5",
    "spark.speculation.multiplier": "1.1",
    "spark.speculation.minTaskRuntime": "0s",
}


def main(place: str, service: str, *command: str) -> None:
    """Run the three steps."""
    folder = Path(place)
    spark = configure(SparkSession.builder.appName("application")).getOrCreate()
    (folder / "places").write_text(json.dumps(places(spark)))
    (folder / "calls").write_text(json.dumps(call(spark, service, folder)))
    sys.argv = list(command)
    runpy.run_path(command[0], run_name="__main__")


# --- the location of requite ----------------------------------------------------------------------
def places(spark: SparkSession) -> dict[str, Any]:
    """Return the files from which the driver and the executors import requite."""
    rows: Any = spark.range(4, numPartitions=4).mapInArrow(locate, "place string").collect()
    return {"driver": requite.__file__, "executors": sorted({row.place for row in rows})}


def locate(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Yield the file from which the executor imports requite."""
    import requite

    for _ in batches:
        yield pa.RecordBatch.from_pydict({"place": [requite.__file__]})


# --- bulk calls with failing tasks ----------------------------------------------------------------
def call(spark: SparkSession, service: str, folder: Path) -> dict[str, Any]:
    """Make the bulk calls; return their rows, keys, statuses and effects."""
    inject_faults(folder)
    df = spark.range(ROWS, numPartitions=PARTITIONS).withColumn("body", F.col("id").cast("string"))
    given = {"body": "body", "key": "id", "window": 4}
    rows = requite.spark.call_to(df, f"{folder}/replies", service, **given).collect()
    once = service.removesuffix("/echo") + "/once"
    effects = requite.spark.call_to(df, f"{folder}/effects", once, **given).collect()
    return {
        "rows": [row.id for row in rows],
        "keys": [row.idempotency_key for row in rows],
        "statuses": sorted({row.status for row in rows}),
        "effects": {row.idempotency_key: int(row.reply) for row in effects},
    }


def inject_faults(folder: Path) -> None:
    """Make the first attempts of two tasks crash or sleep after they have all replies."""
    make_task = bulk._task

    def make_faulty_task(plan: Any) -> Any:
        call_service = make_task(plan)

        def call_and_fail(batches: Iterator[Any]) -> Iterator[Any]:
            answered = list(call_service(batches))
            context = TaskContext.get()
            assert context is not None
            if not context.attemptNumber():
                fail(folder, context.partitionId())
            yield from answered

        return call_and_fail

    bulk._task = make_faulty_task


def fail(folder: Path, partition: int) -> None:
    if partition == CRASHING:
        (folder / "crashed").touch()
        os._exit(1)
    if partition == SLEEPING:
        (folder / "slept").touch()
        time.sleep(SLEEP_S)


if __name__ == "__main__":
    main(*sys.argv[1:])
