"""Bronze is read once and appended to; silver and gold are computed anew from it in every run.

`spark.requite.journal` in the configuration is the folder of the journals. Verdicts are as of the
newest event.
"""

from pyspark import pipelines as dp
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F

from requite.spark import audit, bronze, gold, silver
from requite.spark.lake import columns_of
from requite.spark.lives import lives


def spark() -> SparkSession:
    return SparkSession.active()


def journal() -> DataFrame:
    return spark().readStream.format("requite").load(spark().conf.get("spark.requite.journal"))


def instant(aggregate: str) -> Column:
    """Return when the journal begins (`min`) or ends (`max`)."""
    return spark().table("bronze_events").agg(F.expr(f"{aggregate}(ts)")).scalar()


@dp.table(partition_cols=["date"])
def bronze_events() -> DataFrame:
    return bronze.bronze_events(journal())


@dp.table
def bronze_quarantine() -> DataFrame:
    return bronze.bronze_quarantine(journal())


@dp.temporary_view
def all_lives() -> DataFrame:
    return lives(spark().table("bronze_events"))


@dp.materialized_view(partition_cols=["date"])
def silver_requests() -> DataFrame:
    told = silver.silver_requests(spark().table("all_lives"))
    return told.select(*columns_of("silver_requests"))


@dp.materialized_view(partition_cols=["date"])
def silver_attempts() -> DataFrame:
    return silver.silver_attempts(spark().table("bronze_events"))


@dp.materialized_view(partition_cols=["date"])
def silver_heartbeats() -> DataFrame:
    return silver.silver_heartbeats(spark().table("bronze_events"))


@dp.materialized_view(partition_cols=["date"])
def audit_verdicts() -> DataFrame:
    return audit.verdicts(spark().table("all_lives"), instant("max"))


@dp.materialized_view
def gold_latency_histogram() -> DataFrame:
    return gold.gold_latency_histogram(spark().table("silver_requests"))


@dp.materialized_view
def gold_service_minute() -> DataFrame:
    return gold.gold_service_minute(spark().table("silver_requests"))


@dp.materialized_view
def gold_queue_depth() -> DataFrame:
    return gold.gold_queue_depth(spark().table("all_lives"), instant("max"))


@dp.materialized_view
def gold_worker_liveness() -> DataFrame:
    return gold.gold_worker_liveness(spark().table("silver_heartbeats"), instant("max"))


@dp.materialized_view
def gold_capacity() -> DataFrame:
    return gold.gold_capacity(
        spark().table("silver_requests"),
        spark().table("silver_attempts"),
        spark().table("silver_heartbeats"),
        since=instant("min"),
        until=instant("max"),
    )


@dp.materialized_view
def gold_rightsizing() -> DataFrame:
    histogram = spark().table("gold_latency_histogram")
    return gold.gold_rightsizing(spark().table("gold_capacity"), histogram)


@dp.materialized_view
def poison() -> DataFrame:
    return gold.poison(spark().table("silver_requests"))
