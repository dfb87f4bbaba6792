"""A client of a Spark Connect server that calls functions of requite and prints the results.

    python -m tests.spark.deploy.client URL SERVICE FOLDER PART...

A part is journal, calls, sweep, alerts or run. FOLDER/journal is a journal, also for the server.
Prints one JSON object.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from pathlib import Path
from time import sleep
from typing import Any

from pyspark.errors.exceptions.connect import SparkException
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

import requite.spark
from requite.spark import runner, schemas
from requite.spark.session import configure
from requite.spark.sweep.runs import plan, sim_runs, simulate
from requite.spark.watch.alerts import alerts

ROWS = 20
BUSY_MAX = 5


def main(url: str, service: str, folder: str, *parts: str) -> None:
    """Run the parts, and print their results."""
    spark = configure(SparkSession.builder.remote(url)).getOrCreate()
    requite.spark.register(spark)
    place = Path(folder)
    acts: dict[str, Callable[[], Any]] = {
        "journal": lambda: read(spark, place / "journal"),
        "calls": lambda: call(spark, service, place / "replies"),
        "sweep": lambda: sweep(spark),
        "alerts": lambda: watch(spark, place),
        "run": lambda: run(spark, place),
    }
    results = {part: retry_if_busy(acts[part]) for part in parts}
    print(json.dumps(results | {"session": type(spark).__module__}), flush=True)
    spark.stop()


def retry_if_busy(act: Callable[[], Any]) -> Any:
    """Call `act`; repeat it, up to five times, if the server's processes do not start in time.

    The server gives them ten seconds, which may be too short on a busy machine.
    """
    for _ in range(BUSY_MAX):
        try:
            return act()
        except SparkException as error:
            if "failed to connect back" not in str(error):
                raise
            refused = error
    raise refused


def read(spark: SparkSession, journal: Path) -> dict[str, int]:
    """Count the journal's events by kind."""
    events = spark.read.format("requite").load(str(journal))
    return {row["kind"]: row["count"] for row in events.groupBy("kind").count().collect()}


def call(spark: SparkSession, service: str, to: Path) -> dict[str, Any]:
    """Make bulk calls to an echo service, and write the replies."""
    orders = spark.range(ROWS, numPartitions=2).withColumn("body", F.col("id").cast("string"))
    options = {"body": "body", "key": "id", "mode": "overwrite"}
    replies = requite.spark.call_to(orders, str(to), service, **options).collect()
    return {
        "statuses": sorted({row.status for row in replies}),
        "right": sum(bytes(row.reply).decode() == row.body for row in replies),
        "keys": len({row.idempotency_key for row in replies}),
    }


def sweep(spark: SparkSession) -> list[str]:
    """Run three seeds; return their statuses."""
    runs = sim_runs(simulate(plan(spark, 1, 3, ["calm"]))).orderBy("seed").collect()
    return [row.status for row in runs]


def watch(spark: SparkSession, place: Path) -> list[str]:
    """Watch the journal until it causes alerts; return their kinds."""
    events = spark.readStream.format("requite").load(str(place / "journal"))
    found = str(place / "alerts")
    query = (
        alerts(events)
        .writeStream.format("parquet")
        .option("checkpointLocation", str(place / "checkpoint"))
        .option("path", found)
        .trigger(processingTime="1 second")
        .start()
    )
    try:
        return await_alerts(spark, query, found)
    finally:
        query.stop()


def await_alerts(spark: SparkSession, query: Any, found: str) -> list[str]:
    while query.isActive:
        if Path(found, "_spark_metadata", "0").exists():
            alerted = spark.read.schema(schemas.ALERTS).parquet(found)
            if kinds := [row.kind for row in alerted.collect()]:
                return kinds
        sleep(0.2)
    raise query.exception()


def run(spark: SparkSession, place: Path) -> dict[str, Any]:
    """Run the pipeline; return its summary."""
    return runner.run(spark, place / "journal", place / "lake").record()


if __name__ == "__main__":
    main(*sys.argv[1:])
