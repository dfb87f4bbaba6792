"""Settings for Spark in tests: everything runs once or twice, on a handful of rows.

Compilers, of Java and of Spark, are meant for long runs, and cost several times what they save
here. All of a query's stages stay as they are for users; adaptive execution, too.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

JAVA_OPTIONS: Final = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"

SQL: Final[Mapping[str, str]] = {
    "spark.sql.shuffle.partitions": "2",
    "spark.sql.codegen.wholeStage": "false",
    "spark.sql.codegen.factoryMode": "NO_CODEGEN",
}
