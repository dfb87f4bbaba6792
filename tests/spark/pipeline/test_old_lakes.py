"""What becomes of lakes that another version has made, and of those that have lost something."""

from __future__ import annotations

import json
import shutil

import pytest
from deltalake import DeltaTable
from tests.spark.events import call_id, damaged_row
from tests.spark.pipeline.following import Pipeline

from requite.errors import ConfigurationError, LakeDamaged
from requite.spark import schemas
from requite.spark.delta.catalog import Catalog
from requite.spark.described_tables import Table
from requite.spark.refresh import Progress
from requite.spark.schemas import columns_of

pytestmark = pytest.mark.timeout(300)


def without(table: Table, column: str) -> Table:
    """Return a table as it was before it had a column."""
    others = (f"{name} {kind}: {table.comments[name]}" for name, kind in columns_of(table).items())
    return Table(table.about, "\n".join(line for line in others if line.split()[0] != column))


def test_a_lake_with_the_tables_of_another_version_is_computed_anew(
    pipeline: Pipeline, monkeypatch: pytest.MonkeyPatch
) -> None:
    failed = {"outcome": "FAILED", "error_class": "RemoteFailure", "reason": "no"}
    broker = pipeline.story.broker()
    pipeline.story.call(1, 0.0, broker=broker, **failed)
    broker.tell(1.0, "dropped", dropped=5)
    pipeline.write()
    column_less = without(schemas.GOLD_FAILURES, "sample_request_id")
    of_before = {**schemas.LAKE, "gold_failures": column_less}
    with monkeypatch.context() as older:
        older.setattr(schemas, "LAKE", of_before)
        older.setattr(schemas, "TABLES", {**schemas.TABLES, **of_before})
        pipeline.run()
    assert (second := pipeline.run()).new_events == 0
    assert second.audit.dropped_events == 5
    assert (second.audit.accepted, second.days) == (1, 1)
    assert second.tables["gold_failures"] == 1
    assert pipeline.rows("gold_failures")[0]["sample_request_id"] == call_id(1)
    columns = [field.name for field in DeltaTable(pipeline.root / "gold_failures").schema().fields]
    assert columns == list(schemas.GOLD_FAILURES.comments)  # as users of pandas see it
    assert pipeline.run().days == 0


def make_old(pipeline: Pipeline) -> None:
    """Turn a lake into what format 1 was: folders of Parquet, and files of ours."""
    catalog = Catalog(str(pipeline.root))
    keep = {name: catalog.files(name) for name in ("bronze_events", "bronze_quarantine")}
    offset = catalog.last.state["offset"]
    shutil.rmtree(pipeline.root / "runs")
    for name, files in keep.items():
        for file in files:
            old = pipeline.root / name / file.path
            folder = old.parent / "batch=0"
            folder.mkdir(exist_ok=True)
            old.rename(folder / "part-0.parquet")
    for log in pipeline.root.glob("*/_delta_log"):
        shutil.rmtree(log)
    ours = pipeline.root / "_requite"
    marker = json.loads((ours / "lake.json").read_text())
    ours.joinpath("lake.json").write_text(json.dumps(marker | {"format": 1}))
    ours.joinpath("reading.json").write_text(json.dumps({"base": 0, "again": False}))
    ours.joinpath("state.json").write_text(json.dumps({"batch": 0}))
    checkpoint = pipeline.root / "_checkpoints" / "bronze"
    for kind, text in (("commits", "v1\n{}"), ("offsets", f"v1\n{{}}\n{json.dumps(offset)}")):
        (checkpoint / kind).mkdir(parents=True)
        (checkpoint / kind / "0").write_text(text)


def test_a_lake_of_format_1_is_taken_over(judging: Pipeline) -> None:
    broker = judging.story.broker()
    judging.story.call(1, 0.0, broker=broker)
    judging.write([damaged_row(broker, 999)])
    before = judging.run()
    make_old(judging)
    with pytest.raises(ConfigurationError, match="run `requite spark run`"):
        judging.rows("audit_verdicts")
    for gone in judging.journal.iterdir():  # retention has removed what the lake has
        gone.unlink()
    judging.story.call(2, 1.0, broker=broker)
    judging.write()
    after = judging.run()
    assert Progress("migration", 4) in judging.steps
    assert (before.audit.exactly_one, after.audit.exactly_one) == (1, 2)
    assert (after.new_events, after.audit.damaged) == (6, 1)
    assert len(judging.rows("bronze_events")) == 6
    assert judging.run().audit == after.audit


def test_what_a_lake_has_lost_is_told_by_name(judging: Pipeline) -> None:
    """It used to be taken for what has never been: `0 accepted`, and all well."""
    judging.story.call(1, 0.0, broker=judging.story.broker())
    judging.write()
    judging.run()
    (events,) = Catalog(str(judging.root)).files("bronze_events")
    whole = judging.root.with_name("whole")
    judging.root.rename(whole)
    for lost, told in (
        ("audit_verdicts", r"lake/audit_verdicts is missing"),
        ("bronze_events/_delta_log", r"lake/bronze_events is missing"),
        (f"bronze_events/{events.path}", rf"bronze_events/{events.path} is missing"),
        ("runs", r"lake/runs is missing"),
        ("_requite", r"lake/_requite/lake\.json is missing"),
    ):
        shutil.rmtree(judging.root, ignore_errors=True)
        shutil.copytree(whole, judging.root)
        place = judging.root / lost
        shutil.rmtree(place) if place.is_dir() else place.unlink()
        # A new call on the same day, so that its events are read again.
        judging.story.call(2, 1.0, broker=judging.story.broker("b2"))
        judging.write()
        with pytest.raises(LakeDamaged, match=told):
            judging.run()
