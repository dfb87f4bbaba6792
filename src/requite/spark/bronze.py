"""Bronze: events as the journal has them, each once; what does not decode goes to quarantine."""

from __future__ import annotations

from typing import Final

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from requite.spark.vocabulary import UNKNOWN_PREFIX

PLACE: Final = ("log", "segment", "byte_offset")
"""Where an event stands, which is what makes it the same event."""


def is_bad() -> Column:
    """Whether a row of the source did not decode, wholly or in part."""
    kind = F.col("kind")
    return F.col("raw").isNotNull() | kind.isNull() | kind.startswith(UNKNOWN_PREFIX)


def bronze_events(source: DataFrame) -> DataFrame:
    """Return the rows of `format("requite")` that decode: the table `bronze_events`."""
    return source.where(~is_bad()).drop("raw")


def bronze_quarantine(source: DataFrame) -> DataFrame:
    """Return the other rows, with the reason: the table `bronze_quarantine`."""
    reason = F.coalesce("reason", F.concat(F.lit("kind "), F.col("kind")), F.lit("no kind"))
    return source.where(is_bad()).select(*PLACE, "raw", reason.alias("reason"))


def deduplicate(rows: DataFrame) -> DataFrame:
    """Keep one row per place in the journal.

    Rows are brought together first: what Spark does by itself, to look for duplicates before the
    shuffle as well as after it, sorts everything twice and finds next to nothing.
    """
    return rows.repartition(*PLACE).dropDuplicates(list(PLACE))


def not_among(rows: DataFrame, known: DataFrame) -> DataFrame:
    """Keep the rows whose places are not among those of `known`."""
    return rows.join(known.select(*PLACE), list(PLACE), "left_anti")
