"""Requests that failed, by day and by kind of failure, with an example of each."""

from __future__ import annotations

from typing import Final

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from requite.request import Status

POISONOUS: Final = (Status.FAILED.name, Status.WORKER_LOST.name, Status.POISONED.name)
"""Outcomes that the request itself may have caused, rather than load or network."""

KIND_OF_FAILURE: Final = ("service", "error_class", "fingerprint")

_FINGERPRINT_DIGITS: Final = 12


def fingerprint(error_class: Column, reason: Column) -> Column:
    """Return a hash that is equal for failures of one kind: numbers, ids and quotes are ignored."""
    text = F.lower(F.coalesce(reason, F.lit("")))
    text = F.regexp_replace(text, r"'[^']*'|\"[^\"]*\"", "?")
    text = F.regexp_replace(text, r"\b(0x)?[0-9a-f]{8,}\b", "#")
    text = F.regexp_replace(text, r"\d+([.,]\d+)*", "#")
    whole = F.concat_ws("|", F.coalesce(error_class, F.lit("")), text)
    return F.substring(F.sha2(whole, 256), 1, _FINGERPRINT_DIGITS)


def gold_failures(requests: DataFrame) -> DataFrame:
    """Group failed `silver_requests` by day, service, class and fingerprint of the error."""
    failed = requests.where(F.col("outcome").isin(*POISONOUS)).select(
        "service",
        F.coalesce("error_class", "outcome").alias("error_class"),
        fingerprint(F.col("error_class"), F.col("reason")).alias("fingerprint"),
        F.coalesce("finished_at", "accepted_at").alias("at"),
        "request_id",
        "date",
    )
    return failed.groupBy("date", *KIND_OF_FAILURE).agg(
        F.count("*").alias("n"),
        F.min("at").alias("first_seen"),
        F.max("at").alias("last_seen"),
        F.min_by("request_id", F.struct("at", "request_id")).alias("sample_request_id"),
    )


def over_days(failures: DataFrame) -> DataFrame:
    """Merge rows of `gold_failures` of one kind over all days."""
    first = F.struct("first_seen", "sample_request_id")
    return failures.groupBy(*KIND_OF_FAILURE).agg(
        F.sum("n").alias("n"),
        F.min("first_seen").alias("first_seen"),
        F.max("last_seen").alias("last_seen"),
        F.min_by("sample_request_id", first).alias("sample_request_id"),
    )
