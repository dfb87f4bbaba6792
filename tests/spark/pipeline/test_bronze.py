"""Bronze: what decodes, once; what does not, with its reason; nothing falls in between."""

from __future__ import annotations

from pyspark.sql import SparkSession
from tests.spark.events import Story, collect, damaged_row, schema_names

from requite.spark import schemas
from requite.spark.bronze import bronze_events, bronze_quarantine, deduplicate, not_among


def test_every_row_of_the_source_goes_one_way(spark: SparkSession) -> None:
    story = Story()
    broker = story.broker()
    story.call(1, 0.0, broker=broker)
    bad = [
        damaged_row(broker, 800, "its checksum does not match"),
        damaged_row(broker, 808, "schema version 9", kind="accepted"),
        damaged_row(broker, 816, "kind 77", kind="unknown:77"),
        damaged_row(broker, 824, None) | {"raw": None, "kind": "unknown:78"},
        damaged_row(broker, 832, None) | {"raw": None},
    ]
    source = story.source_frame(spark, bad)
    good, quarantine = bronze_events(source), bronze_quarantine(source)
    assert good.columns == schema_names(schemas.BRONZE_EVENTS)
    assert quarantine.columns == schema_names(schemas.BRONZE_QUARANTINE)
    assert {row["kind"] for row in collect(good)} == {"accepted", "dispatched", "answered"}
    reasons = {row["byte_offset"]: row["reason"] for row in collect(quarantine)}
    assert reasons == {
        800: "its checksum does not match",
        808: "schema version 9",
        816: "kind 77",
        824: "kind unknown:78",
        832: "no kind",
    }


def test_an_event_is_the_same_where_its_place_is(spark: SparkSession) -> None:
    story = Story()
    story.call(1, 0.0, broker=story.broker("b1"))
    story.call(1, 0.0, broker=story.broker("b2"))
    events = story.frame(spark)
    twice = events.union(events)
    assert twice.count() == 12
    once = deduplicate(twice)
    assert once.count() == 6
    known = events.where("log like '%-6231%'")
    assert {row["log"] for row in collect(not_among(once, known))} == {"broker-6232000000000000"}
