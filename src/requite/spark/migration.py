"""Take over a lake of format 1, which was folders of Parquet.

Bronze is copied into Delta tables, all of it in one commit; everything else is computed anew by the
run that follows. The files of before stay until they are deleted as what nobody needs.
"""

from __future__ import annotations

from pathlib import Path
from typing import Final

from pyspark.sql import functions as F
from pyspark.sql.types import LongType

from requite.spark.delta.table import Transaction
from requite.spark.ingest import EVENTS, QUARANTINE, Checkpoint
from requite.spark.lake import Lake, columns_of, schema_of, write_files
from requite.spark.marker import FORMAT, load, marker_of, save

_BATCH: Final = "batch"
_FOLDERS: Final = {EVENTS: "date=*/batch=*", QUARANTINE: "batch=*"}


def migrate(lake: Lake) -> int:
    """Make a lake of format 1 one of today's, in a run; return how many rows were taken over.

    A migration that dies is repeated by the next run.
    """
    root = Path(lake.root)
    marker = marker_of(root)
    checkpoint = Checkpoint(root / "_checkpoints" / "bronze")
    reading = marker.with_name("reading.json")
    base = load(reading).get("base", 0) if reading.exists() else 0
    done = checkpoint.done
    # What the last batch may have written that Spark does not know of is read again.
    until = None if done < 0 else base + done
    once = Transaction(checkpoint.query or "format 1", max(done, 0))
    rows = sum(_take_over(lake, name, until, once) for name in _FOLDERS)
    save(marker, load(marker) | {"format": FORMAT})
    for name in ("state.json", "reading.json", "lock"):
        marker.with_name(name).unlink(missing_ok=True)
    return rows


def _take_over(lake: Lake, name: str, until: int | None, once: Transaction) -> int:
    folders = _FOLDERS[name]
    if lake.catalog.has(name, once) or not any(Path(lake.root, name).glob(folders)):
        return 0
    reader = lake.spark.read.schema(schema_of(name).add(_BATCH, LongType()))
    place = f"{lake.root}/{name}"
    rows = reader.option("basePath", place).parquet(f"{place}/{folders}")
    if until is not None:
        rows = rows.where(F.col(_BATCH) <= until)
    added = write_files(lake.root, name, rows.select(*columns_of(name)))
    lake.catalog.commit(name, added, (), once)
    return sum(file.rows for file in added)
