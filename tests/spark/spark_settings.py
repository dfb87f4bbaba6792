"""Settings for Spark in tests, where each query runs once or twice on a few rows.

The compilers of Java and Spark are made for long runs; here they cost several times what they save.
The stages of queries and adaptive execution are as for users.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Final

ARCHIVE: Final = Path(sys.prefix, "spark-classes.jsa")  # see `tests.spark.class_archive`
QUIET: Final = "-Xlog:cds=off -Xlog:cds+dynamic=off"
# Java would not even use its own archive if this one were missing or empty.
_IS_MADE: Final = ARCHIVE.is_file() and ARCHIVE.stat().st_size > 0
USES_ARCHIVE: Final = f"-XX:SharedArchiveFile={ARCHIVE} {QUIET}" if _IS_MADE else QUIET
_COMPILER: Final = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
JAVA_OPTIONS: Final = f"{_COMPILER} {USES_ARCHIVE}"

# For the process that all tests share. It mostly plans queries, so it has few old objects and much
# compiled code, which Java would discard and compile again in a smaller code cache.
LASTING_JAVA_OPTIONS: Final = f"{_COMPILER} -XX:ReservedCodeCacheSize=256m -Xms1g -Xmn600m"

SQL: Final[Mapping[str, str]] = {
    "spark.sql.shuffle.partitions": "2",
    "spark.sql.codegen.wholeStage": "false",
    "spark.sql.codegen.factoryMode": "NO_CODEGEN",
    # Plans are rendered for a page of the UI, which is disabled.
    "spark.sql.ui.explainMode": "simple",
}


def environment() -> dict[str, str]:
    """Return the environment variables that apply these settings to a program that starts Spark."""
    settings = (f"-D{name}={value}" for name, value in SQL.items())
    return {"SPARK_SUBMIT_OPTS": " ".join((JAVA_OPTIONS, *settings))}
