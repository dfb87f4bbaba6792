"""Bronze: the journal's events, each once; rows that do not decode go to quarantine.

Implemented twice: for the Arrow batches that tasks read, and for DataFrames.
"""

from __future__ import annotations

from typing import Final

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from requite.story.vocabulary import UNKNOWN_PREFIX

EVENTS: Final = "bronze_events"
QUARANTINE: Final = "bronze_quarantine"
IDS: Final = "bronze_ids"

CLIENT_DIGITS: Final = 16
"""Leading hexadecimal digits of a request id that name the client; the others are its count."""

PLACE: Final = ("log", "segment", "byte_offset")
"""The position of an event in the journal, which is its identity."""


def bad_rows(batch: pa.RecordBatch) -> pa.BooleanArray | None:
    """Return a mask of the source rows that did not decode, wholly or in part; None if all did."""
    raw, kind = batch.column("raw"), batch.column("kind")
    is_odd = pc.or_(pc.is_null(kind), pc.starts_with(kind, UNKNOWN_PREFIX))
    is_bad = pc.or_(pc.is_valid(raw), pc.fill_null(is_odd, True))
    return is_bad if pc.any(is_bad).as_py() else None


def quarantined(batch: pa.RecordBatch) -> pa.RecordBatch:
    """Return undecodable rows with the columns of `bronze_quarantine`."""
    named = pc.binary_join_element_wise("kind", batch.column("kind"), " ")
    reason = pc.coalesce(batch.column("reason"), named, pa.scalar("no kind"))
    columns = [*(batch.column(name) for name in PLACE), batch.column("raw"), reason]
    return pa.RecordBatch.from_arrays(columns, [*PLACE, "raw", "reason"])


def is_bad() -> Column:
    """Return whether a row of the source did not decode, wholly or in part."""
    kind = F.col("kind")
    return F.col("raw").isNotNull() | kind.isNull() | kind.startswith(UNKNOWN_PREFIX)


def bronze_events(source: DataFrame) -> DataFrame:
    """Return the decodable rows of `format("requite")`: the table `bronze_events`."""
    return source.where(~is_bad()).drop("raw")


def bronze_quarantine(source: DataFrame) -> DataFrame:
    """Return the undecodable rows, with the reason: the table `bronze_quarantine`."""
    reason = F.coalesce("reason", F.concat(F.lit("kind "), F.col("kind")), F.lit("no kind"))
    return source.where(is_bad()).select(*PLACE, "raw", reason.alias("reason"))
