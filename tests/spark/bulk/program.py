"""A driver on a cluster: makes bulk calls, after which one task crashes, and one falls asleep.

    python -m tests.spark.bulk.program MASTER SERVICE FOLDER

The first makes Spark try the task again, the second start a speculative copy. Does so with SERVICE,
and with the service `once` beside it. Writes rows and replies to FOLDER/replies and FOLDER/effects,
and prints the rows, their ids and the effects as JSON.
"""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from pyspark import TaskContext
from pyspark.sql import SparkSession
from pyspark.sql import functions as F
from tests.spark.cluster import SMALL

import requite.spark
from requite.spark.bulk import calls as bulk
from requite.spark.session import configure, prepare_environment

ROWS, PARTITIONS = 40, 4
CRASHING, SLEEPING = 0, 1
SLEEP_S = 3600
SPECULATION = {
    "spark.speculation": "true",
    "spark.speculation.interval": "100ms",
    "spark.speculation.quantile": "0.5",
    "spark.speculation.multiplier": "1.1",
    "spark.speculation.minTaskRuntime": "0s",
}


def main(master: str, service: str, folder: str) -> None:
    """Make the calls, and tell what became of them."""
    prepare_environment()
    builder = configure(SparkSession.builder.appName("trouble").master(master))
    for name, value in {**SMALL, **SPECULATION}.items():
        builder = builder.config(name, value)
    spark = builder.getOrCreate()
    make_trouble(Path(folder))
    df = spark.range(ROWS, numPartitions=PARTITIONS).withColumn("body", F.col("id").cast("string"))
    replies = f"{folder}/replies"
    rows = requite.spark.call_to(df, replies, service, body="body", key="id", window=4).collect()
    told = {"rows": [row.id for row in rows], "keys": [row.idempotency_key for row in rows]}
    once = service.removesuffix("/echo") + "/once"
    effects = requite.spark.call_to(
        df, f"{folder}/effects", once, body="body", key="id", window=4
    ).collect()
    told |= {"effects": {row.idempotency_key: int(row.reply) for row in effects}}
    print(json.dumps(told | {"statuses": sorted({row.status for row in rows})}))
    spark.stop()


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
