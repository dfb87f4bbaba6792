"""Lakes of other versions, and lakes with missing files."""

from __future__ import annotations

import json
import shutil

import pytest
from deltalake import DeltaTable
from tests.spark.events import call_id, damaged_row
from tests.spark.pipeline.harness import Pipeline

from requite.errors import ConfigurationError, LakeDamaged
from requite.spark import schemas
from requite.spark.delta.catalog import Catalog
from requite.spark.described_tables import Table
from requite.spark.refresh import Progress
from requite.spark.schemas import columns_of

pytestmark = pytest.mark.timeout(300)


def without(table: Table, column: str) -> Table:
    """Return a table without one of its columns."""
    others = (f"{name} {kind}: {table.comments[name]}" for name, kind in columns_of(table).items())
    return Table(table.about, "\n".join(line for line in others if line.split()[0] != column))


def test_a_lake_with_the_tables_of_another_version_is_recomputed(
    pipeline: Pipeline, monkeypatch: pytest.MonkeyPatch
) -> None:
    failed = {"outcome": "FAILED", "error_class": "RemoteFailure", "reason": "no"}
    broker = pipeline.builder.broker()
    pipeline.builder.call(1, 0.0, broker=broker, **failed)
    broker.add(1.0, "dropped", dropped=5)
    pipeline.write()
    without_sample = without(schemas.GOLD_FAILURES, "sample_request_id")
    older_tables = {**schemas.LAKE, "gold_failures": without_sample}
    with monkeypatch.context() as older:
        older.setattr(schemas, "LAKE", older_tables)
        older.setattr(schemas, "TABLES", {**schemas.TABLES, **older_tables})
        pipeline.run()
    assert (second := pipeline.run()).new_events == 0
    assert second.audit.dropped_events == 5
    assert (second.audit.accepted, second.days) == (1, 1)
    assert second.tables["gold_failures"] == 1
    assert pipeline.rows("gold_failures")[0]["sample_request_id"] == call_id(1)
    columns = [field.name for field in DeltaTable(pipeline.root / "gold_failures").schema().fields]
    assert columns == list(schemas.GOLD_FAILURES.comments)  # as users of pandas see them
    assert pipeline.run().days == 0


def make_old(pipeline: Pipeline) -> None:
    """Convert a lake to format 1: folders of Parquet files, and state files of requite."""
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


def test_a_lake_of_format_1_is_migrated(audit_only: Pipeline) -> None:
    broker = audit_only.builder.broker()
    audit_only.builder.call(1, 0.0, broker=broker)
    audit_only.write([damaged_row(broker, 999)])
    before = audit_only.run()
    make_old(audit_only)
    with pytest.raises(ConfigurationError, match="run `requite spark run`"):
        audit_only.rows("audit_verdicts")
    for gone in audit_only.journal.iterdir():  # retention has removed the events that the lake has
        gone.unlink()
    audit_only.builder.call(2, 1.0, broker=broker)
    audit_only.write()
    after = audit_only.run()
    assert Progress("migration", 4) in audit_only.steps
    assert (before.audit.exactly_one, after.audit.exactly_one) == (1, 2)
    assert (after.new_events, after.audit.damaged) == (6, 1)
    assert len(audit_only.rows("bronze_events")) == 6
    assert audit_only.run().audit == after.audit


def test_missing_files_of_a_lake_are_named(audit_only: Pipeline) -> None:
    """A lost table must not be read as an empty one: `0 accepted`, without an error."""
    audit_only.builder.call(1, 0.0, broker=audit_only.builder.broker())
    audit_only.write()
    audit_only.run()
    (events,) = Catalog(str(audit_only.root)).files("bronze_events")
    whole = audit_only.root.with_name("whole")
    audit_only.root.rename(whole)
    for lost, message in (
        ("audit_verdicts", r"lake/audit_verdicts is missing"),
        ("bronze_events/_delta_log", r"lake/bronze_events is missing"),
        (f"bronze_events/{events.path}", rf"bronze_events/{events.path} is missing"),
        ("runs", r"lake/runs is missing"),
        ("_requite", r"lake/_requite/lake\.json is missing"),
    ):
        shutil.rmtree(audit_only.root, ignore_errors=True)
        shutil.copytree(whole, audit_only.root)
        place = audit_only.root / lost
        shutil.rmtree(place) if place.is_dir() else place.unlink()
        # A new call on the same day, so that its events are read again.
        audit_only.builder.call(2, 1.0, broker=audit_only.builder.broker("b2"))
        audit_only.write()
        with pytest.raises(LakeDamaged, match=message):
            audit_only.run()
