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
    """Make `format("requite")` known to a Spark session.

    Spark finds it by itself wherever requite is installed beside pyspark; this is the explicit way,
    for code that was sent along (`--py-files`) and for being sure which copy is used.
    """
    from requite.spark.source import JournalSource

    spark.dataSource.register(JournalSource)


def __getattr__(name: str) -> Any:
    """Load what needs Spark when it is first asked for."""
    if name in _ELSEWHERE:
        return getattr(import_module(_ELSEWHERE[name]), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
