"""Settings for Spark in tests: everything runs once or twice, on a handful of rows.

Compilers, of Java and of Spark, are meant for long runs, and cost several times what they save
here. All of a query's stages stay as they are for users; adaptive execution, too.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Final

JAVA_OPTIONS: Final = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"

# For the process that all tests share. Planning is all it does: it has little that is old to
# collect, and much code, which Java would throw away and compile again for lack of room.
LASTING_JAVA_OPTIONS: Final = f"{JAVA_OPTIONS} -XX:ReservedCodeCacheSize=256m -Xms1g -Xmn600m"

SQL: Final[Mapping[str, str]] = {
    "spark.sql.shuffle.partitions": "2",
    "spark.sql.codegen.wholeStage": "false",
    "spark.sql.codegen.factoryMode": "NO_CODEGEN",
    # Plans are rendered for a page that nobody looks at.
    "spark.sql.ui.explainMode": "simple",
}


def environment(folder: Path) -> dict[str, str]:
    """Return the variables that give these settings to a process; they are kept in a folder."""
    settings = folder / "spark-conf"
    settings.mkdir()
    lines = (f"{name} {value}\n" for name, value in SQL.items())
    (settings / "spark-defaults.conf").write_text("".join(lines))
    return {"SPARK_CONF_DIR": str(settings), "SPARK_SUBMIT_OPTS": JAVA_OPTIONS}
