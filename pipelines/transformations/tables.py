"""The tables of `requite spark run` as a declarative pipeline.

Bronze is read once and appended to. Silver and gold are recomputed from bronze in every run.

`spark.requite.journal` in the configuration is the folder of the journal. Verdicts are as of the
newest event. The pipeline assumes that the clocks of all machines agree, that request ids are those
of the callers (MDP 0.3), and that the journal is complete. `requite spark run` corrects the clocks,
finds the ids of the callers, and reports missing events.

Tables are read through views. If a table exists from an earlier run, and columns are added to it
(`withColumns`), Spark 4.3 resolves it at once, without the flow that fills it. Gold would then be
computed from the silver of the earlier run. Spark does not resolve views at once.
"""

from pyspark import pipelines as dp
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F

from requite.spark import audit, bronze, decisions, gold, silver
from requite.spark.contradictions import contradictions
from requite.spark.lake import columns_of
from requite.spark.lifecycle import lives


def spark() -> SparkSession:
    return SparkSession.active()


def journal() -> DataFrame:
    return spark().readStream.format("requite").load(spark().conf.get("spark.requite.journal"))


@dp.temporary_view
def events() -> DataFrame:
    return spark().table("bronze_events")


@dp.temporary_view
def requests() -> DataFrame:
    return spark().table("silver_requests")


@dp.temporary_view
def attempts() -> DataFrame:
    return spark().table("silver_attempts")


@dp.temporary_view
def waits() -> DataFrame:
    return spark().table("silver_waits")


@dp.temporary_view
def heartbeats() -> DataFrame:
    return spark().table("silver_heartbeats")


@dp.temporary_view
def access() -> DataFrame:
    return spark().table("silver_access")


@dp.temporary_view
def histogram() -> DataFrame:
    return spark().table("gold_latency_histogram")


@dp.temporary_view
def capacity() -> DataFrame:
    return spark().table("gold_capacity")


@dp.temporary_view
def all_lives() -> DataFrame:
    return lives(spark().table("events"))


def instant(aggregate: str) -> Column:
    """Return the first (`min`) or the last (`max`) instant of the journal."""
    return spark().table("events").agg(F.expr(f"{aggregate}(ts)")).scalar()


@dp.table
def bronze_events() -> DataFrame:
    return bronze.bronze_events(journal())


@dp.table
def bronze_quarantine() -> DataFrame:
    return bronze.bronze_quarantine(journal())


@dp.materialized_view
def silver_requests() -> DataFrame:
    owned = decisions.owners(spark().table("access"))
    rows = silver.silver_requests(spark().table("all_lives"), owned)
    return rows.select(*columns_of("silver_requests"))


@dp.materialized_view
def silver_attempts() -> DataFrame:
    return silver.silver_attempts(spark().table("events"))


@dp.materialized_view
def silver_waits() -> DataFrame:
    return silver.silver_waits(spark().table("all_lives"))


@dp.materialized_view
def silver_heartbeats() -> DataFrame:
    return silver.silver_heartbeats(spark().table("events"))


@dp.materialized_view
def silver_access() -> DataFrame:
    return decisions.silver_access(spark().table("events"))


@dp.materialized_view
def audit_verdicts() -> DataFrame:
    return audit.verdicts(spark().table("all_lives"), instant("max"))


@dp.materialized_view
def audit_contradictions() -> DataFrame:
    return contradictions(spark().table("all_lives"), spark().table("events"))


@dp.materialized_view
def gold_latency_histogram() -> DataFrame:
    return gold.gold_latency_histogram(spark().table("requests"))


@dp.materialized_view
def gold_service_minute() -> DataFrame:
    return gold.gold_service_minute(spark().table("requests"))


@dp.materialized_view
def gold_queue_depth() -> DataFrame:
    return gold.gold_queue_depth(spark().table("waits"), instant("max"))


@dp.materialized_view
def gold_worker_liveness() -> DataFrame:
    return gold.gold_worker_liveness(spark().table("heartbeats"), instant("max"))


@dp.materialized_view
def gold_capacity() -> DataFrame:
    return gold.gold_capacity(
        spark().table("requests"),
        spark().table("attempts"),
        spark().table("heartbeats"),
        since=instant("min"),
        until=instant("max"),
    )


@dp.materialized_view
def gold_rightsizing() -> DataFrame:
    return gold.gold_rightsizing(spark().table("capacity"), spark().table("requests"))


@dp.materialized_view
def gold_failures() -> DataFrame:
    return gold.gold_failures(spark().table("requests"))
