"""An archive of the Java classes of Spark, with which a session starts in 6 s instead of 10.

    python -m tests.spark.class_archive

`scripts/setup test` makes it. Java does not use an archive that is missing, or was made by another
Java or of other files, and says nothing about it (`tests.spark.spark_settings`).
"""

from __future__ import annotations

import tempfile
from pathlib import Path

from tests.spark import spark_settings
from tests.spark.conftest import end_java, start_session


def make(archive: Path) -> None:
    """Start Spark, run a query, and save the classes that Java has loaded."""
    archive.unlink(missing_ok=True)
    saving = f"-XX:ArchiveClassesAtExit={archive} {spark_settings.QUIET}"
    with tempfile.TemporaryDirectory() as folder:
        session = start_session(Path(folder), saving)
        rows = session.range(10).selectExpr("id % 2 AS odd", "id").groupBy("odd").count()
        rows.write.parquet(f"{folder}/rows")
        assert session.read.parquet(f"{folder}/rows").count() == 2
        session.stop()
        end_java()


if __name__ == "__main__":
    make(spark_settings.ARCHIVE)
