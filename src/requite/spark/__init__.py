"""requite on Spark: the journal as a table, bulk calls from DataFrames, audit and capacity."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from requite.spark.bulk.calls import call as call
    from requite.spark.bulk.calls import call_to as call_to
    from requite.spark.bulk.progress import Progress as Progress

__all__ = ["Progress", "call", "call_to", "register"]

_ELSEWHERE: Final = {
    "Progress": "requite.spark.bulk.progress",
    "call": "requite.spark.bulk.calls",
    "call_to": "requite.spark.bulk.calls",
}


def register(spark: SparkSession) -> None:
    """Register `format("requite")` and the table function `requite_call` with a Spark session.

    Spark finds the format without this call where requite is installed beside pyspark. Call it
    for code that was shipped with `--py-files`, to choose which copy is used, and for
    `requite_call` (`requite.spark.function`), in each session that uses it.
    """
    from pyspark.sql.functions import udtf

    from requite.spark.function import NAME, RequiteCall
    from requite.spark.source import JournalSource

    spark.dataSource.register(JournalSource)
    function: Any = udtf(RequiteCall)
    spark.udtf.register(NAME, function)


def __getattr__(name: str) -> Any:
    """Import the names that need Spark on first use."""
    if name in _ELSEWHERE:
        return getattr(import_module(_ELSEWHERE[name]), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
