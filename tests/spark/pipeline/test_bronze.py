"""Bronze: rows that decode become events; all others are quarantined, with a reason."""

from __future__ import annotations

import pyarrow.compute as pc
from pyspark.sql import SparkSession
from tests.spark.events import EventBuilder, collect, damaged_row, rows_table, schema_names

from requite.spark import schemas
from requite.spark.bronze import bad_rows, bronze_events, bronze_quarantine, quarantined


def test_every_row_of_the_source_is_an_event_or_quarantined(spark: SparkSession) -> None:
    builder = EventBuilder()
    broker = builder.broker()
    builder.call(1, 0.0, broker=broker)
    bad = [
        damaged_row(broker, 800, "its checksum does not match"),
        damaged_row(broker, 808, "schema version 9", kind="accepted"),
        damaged_row(broker, 816, "kind 77", kind="unknown:77"),
        damaged_row(broker, 824, None) | {"raw": None, "kind": "unknown:78"},
        damaged_row(broker, 832, None) | {"raw": None},
    ]
    source = builder.source_frame(spark, bad)
    good, quarantine = bronze_events(source), bronze_quarantine(source)
    assert good.columns == schema_names(schemas.BRONZE_EVENTS)
    assert quarantine.columns == schema_names(schemas.BRONZE_QUARANTINE)
    assert {row["kind"] for row in collect(good)} == {"accepted", "dispatched", "answered"}
    rows = collect(quarantine)
    assert {row["byte_offset"]: row["reason"] for row in rows} == {
        800: "its checksum does not match",
        808: "schema version 9",
        816: "kind 77",
        824: "kind unknown:78",
        832: "no kind",
    }

    (batch,) = rows_table([*builder.events, *bad], schemas.SOURCE).to_batches()
    is_bad = bad_rows(batch)
    assert quarantined(batch.filter(is_bad)).to_pylist() == rows
    assert batch.filter(pc.invert(is_bad)).drop_columns(["raw"]).to_pylist() == collect(good)
    assert bad_rows(batch.filter(pc.invert(is_bad))) is None
