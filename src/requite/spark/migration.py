"""Migrates a lake of format 1, which was folders of Parquet.

Bronze is copied into Delta tables; the next run recomputes all other tables. The old files stay
until they are deleted as unneeded.
"""

from __future__ import annotations

import json
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

from pyspark.sql import functions as F
from pyspark.sql.types import LongType

from requite.errors import LakeDamaged
from requite.spark.bronze import EVENTS, QUARANTINE
from requite.spark.lake import Lake, columns_of, schema_of, write_files
from requite.spark.marker import FORMAT, OURS, load, save

_BATCH: Final = "batch"
_FOLDERS: Final = {EVENTS: "date=*/batch=*", QUARANTINE: "batch=*"}


def migrate(lake: Lake) -> int:
    """Migrate a lake of format 1 in a separate run; return its number of rows.

    The next run repeats a crashed migration. Raises `LakeDamaged` if the position in the journal is
    missing or damaged.
    """
    root = lake.root
    began = datetime.now(UTC)
    base = (load(root, path=f"{OURS}/reading.json") or {}).get("base", 0)
    done, offset = _read_until(Path(root, "_checkpoints", "bronze"))
    with lake.catalog.running():
        # Rows of a batch that Spark has not committed are read again from the journal.
        rows = sum(_take_over(lake, name, base + done) for name in _FOLDERS) if offset else 0
        state = {"offset": offset, "anew": True}
        lake.catalog.end(state, began_at=began, ended_at=datetime.now(UTC), new_events=rows)
    save(root, (load(root) or {}) | {"format": FORMAT})
    for name in ("state.json", "reading.json", "lock"):
        Path(root, OURS, name).unlink(missing_ok=True)
    return rows


def _read_until(checkpoint: Path) -> tuple[int, dict[str, Any] | None]:
    """Return the last committed batch of a stream, and the offset after it."""
    commits = checkpoint / "commits"
    names = [path.name for path in commits.iterdir()] if commits.is_dir() else []
    done = max((int(name) for name in names if name.isdecimal()), default=-1)
    if done < 0:
        return done, None
    file = checkpoint / "offsets" / str(done)
    try:
        offset: dict[str, Any] = json.loads(file.read_text(encoding="utf-8").splitlines()[2])
    except (OSError, ValueError, IndexError):
        raise LakeDamaged(
            f"{file} is missing or damaged, so the position in the journal is unknown; pass a"
            " new folder, in which the lake is rebuilt from the whole journal"
        ) from None
    return done, offset


def _take_over(lake: Lake, name: str, until: int) -> int:
    folders = _FOLDERS[name]
    if not any(Path(lake.root, name).glob(folders)):
        return 0
    reader = lake.spark.read.schema(schema_of(name).add(_BATCH, LongType()))
    place = f"{lake.root}/{name}"
    rows = reader.option("basePath", place).parquet(f"{place}/{folders}")
    known = rows.where(F.col(_BATCH) <= until)
    added = write_files(lake.root, name, known.select(*columns_of(name)))
    lake.catalog.commit(name, added)
    return sum(file.rows for file in added)
