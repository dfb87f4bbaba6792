"""What spark-submit runs in a test: three things in one application, whose start takes time.

    spark-submit --py-files requite.zip application.py FOLDER SERVICE PROGRAM VERB...

1. Writes to FOLDER/places from where driver and executors have requite.
2. Makes bulk calls to SERVICE, and to the service `once` beside it. In each, one task crashes when
   it has all replies, and one falls asleep: the first makes Spark try the task again, the second
   start a speculative copy. Writes the rows, their ids and the effects to FOLDER/calls.
3. Becomes PROGRAM, what `pack` writes for spark-submit.

Executors cannot import this file: what they run of it travels by value.
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
    """Do all three."""
    folder = Path(place)
    spark = configure(SparkSession.builder.appName("application")).getOrCreate()
    (folder / "places").write_text(json.dumps(places(spark)))
    (folder / "calls").write_text(json.dumps(call(spark, service, folder)))
    sys.argv = list(command)
    runpy.run_path(command[0], run_name="__main__")


# --- where requite is -----------------------------------------------------------------------------
def places(spark: SparkSession) -> dict[str, Any]:
    """Return where requite is, on the driver and on the executors."""
    told: Any = spark.range(4, numPartitions=4).mapInArrow(tell, "place string").collect()
    return {"driver": requite.__file__, "executors": sorted({row.place for row in told})}


def tell(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Tell which file the executor's requite is."""
    import requite

    for _ in batches:
        yield pa.RecordBatch.from_pydict({"place": [requite.__file__]})


# --- calls in trouble -----------------------------------------------------------------------------
def call(spark: SparkSession, service: str, folder: Path) -> dict[str, Any]:
    """Make the calls, and tell what became of them."""
    make_trouble(folder)
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


def make_trouble(folder: Path) -> None:
    """Let something happen to first attempts in their Python worker, when they have all replies."""
    make_task = bulk._task

    def troubled(plan: Any) -> Any:
        call_service = make_task(plan)

        def call_and_suffer(batches: Iterator[Any]) -> Iterator[Any]:
            answered = list(call_service(batches))
            context = TaskContext.get()
            assert context is not None
            if not context.attemptNumber():
                suffer(folder, context.partitionId())
            yield from answered

        return call_and_suffer

    bulk._task = troubled


def suffer(folder: Path, partition: int) -> None:
    if partition == CRASHING:
        (folder / "crashed").touch()
        os._exit(1)
    if partition == SLEEPING:
        (folder / "slept").touch()
        time.sleep(SLEEP_S)


if __name__ == "__main__":
    main(*sys.argv[1:])
