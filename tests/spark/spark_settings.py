"""Settings for Spark in tests, where each query runs once or twice on a few rows.

The compilers of Java and Spark are made for long runs; here they cost several times what they save.
The stages of queries and adaptive execution are as for users.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Final

JAVA_OPTIONS: Final = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"

# For the process that all tests share. It mostly plans queries, so it has few old objects and much
# compiled code, which Java would discard and compile again in a smaller code cache.
LASTING_JAVA_OPTIONS: Final = f"{JAVA_OPTIONS} -XX:ReservedCodeCacheSize=256m -Xms1g -Xmn600m"

SQL: Final[Mapping[str, str]] = {
    "spark.sql.shuffle.partitions": "2",
    "spark.sql.codegen.wholeStage": "false",
    "spark.sql.codegen.factoryMode": "NO_CODEGEN",
    # Plans are rendered for a page of the UI, which is disabled.
    "spark.sql.ui.explainMode": "simple",
}


def environment(folder: Path) -> dict[str, str]:
    """Write these settings to a folder; return the environment variables that apply them."""
    settings = folder / "spark-conf"
    settings.mkdir()
    lines = (f"{name} {value}\n" for name, value in SQL.items())
    (settings / "spark-defaults.conf").write_text("".join(lines))
    return {"SPARK_CONF_DIR": str(settings), "SPARK_SUBMIT_OPTS": JAVA_OPTIONS}
