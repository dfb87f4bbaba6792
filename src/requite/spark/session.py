"""Spark sessions as requite needs them: in this process, or configured by somebody else.

`local_session` starts Spark inside this process, quiet and on loopback only. On a cluster, or over
Spark Connect, whoever makes the session passes its builder through `configure`, which sets only
what the pipeline relies on.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Final

from requite.spark.java import ensure_java

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

LOOPBACK: Final = "127.0.0.1"

# What our tables and functions rely on; each may be set on a session that already runs.
NEEDED: Final[Mapping[str, str]] = {
    # Instants are UTC everywhere, whatever the machine thinks; `date` follows from it.
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.execution.arrow.pyspark.enabled": "true",
    # Lets `format("requite")` skip what a filter excludes; see `requite.spark.source`.
    "spark.sql.python.filterPushdown.enabled": "true",
    # The streaming audit keeps timers, which the other state store does not know.
    "spark.sql.streaming.stateStore.providerClass": (
        "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider"
    ),
}

# In an archive on an executor the path of a module is relative; there is nothing to be read then.
_LOG_SETTINGS: Final = Path(__file__).absolute().with_name("log4j2.properties")

# How a session inside this process behaves: it talks to nobody else, and says nothing.
LOCAL: Final[Mapping[str, str]] = {
    "spark.driver.host": LOOPBACK,
    "spark.driver.bindAddress": LOOPBACK,
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.driver.memory": "2g",
    # A local run has few cores, and a task costs more than it gains when a table is small.
    "spark.sql.shuffle.partitions": "4",
    # Files are named to Spark one by one; it would start a job to look for as few as 33.
    "spark.sql.sources.parallelPartitionDiscovery.threshold": "10000",
    # Naming the line of Python in errors takes as many calls of the JVM as everything else.
    "spark.python.sql.dataFrameDebugging.enabled": "false",
    # Java's second compiler does not pay for itself: without it a run over 1 million events takes
    # 75 s of processor time for 89, over 3 million 125 for 139, and one with 1 % of news 32 for 57.
    "spark.driver.extraJavaOptions": (
        f"-XX:TieredStopAtLevel=1 -Dlog4j2.configurationFile={_LOG_SETTINGS.as_uri()}"
    ),
}

_ERROR_LOGGERS: Final = ("DataFrameQueryContextLogger", "SQLQueryContextLogger")

# Tells the processes that Spark starts, which plan a read, that they may push filters down: they
# cannot see the session, and offering it where it is switched off fails every read.
PUSHDOWN_VARIABLE: Final = "REQUITE_SPARK_PUSHDOWN"


def configure(builder: SparkSession.Builder) -> SparkSession.Builder:
    """Set what requite's tables need on a builder of whatever session, and return the builder."""
    for key, value in NEEDED.items():
        builder = builder.config(key, value)
    return builder


def local_session(
    app_name: str = "requite", *, cores: int | str = "*", conf: Mapping[str, str] | None = None
) -> SparkSession:
    """Start Spark in this process on `cores` threads, or return the session that runs already.

    `conf` is added to our settings and wins over them. There is one session per process: a second
    call returns the first one's, on which only settings of SQL still take effect. Raises
    `JavaMissing` where there is no Java.
    """
    from pyspark.sql import SparkSession

    if SparkSession.getActiveSession() is None:
        prepare_environment()
    builder = configure(SparkSession.builder.appName(app_name).master(f"local[{cores}]"))
    for key, value in {**LOCAL, **(conf or {})}.items():
        builder = builder.config(key, value)
    return builder.getOrCreate()


def prepare_environment() -> None:
    """Set the environment that Spark's own scripts and workers read: Java, Python, addresses.

    Also has pyspark not write each error of a query to stderr, with Java's whole stack: the
    exception has all of it.
    """
    from pyspark.logger import PySparkLogger

    for name in _ERROR_LOGGERS:
        PySparkLogger.getLogger(name).disabled = True
    ensure_java()
    # Workers run the very Python that runs this, with what is installed in it.
    os.environ["PYSPARK_PYTHON"] = os.environ["PYSPARK_DRIVER_PYTHON"] = sys.executable
    # Without it Spark looks up the machine's name, and warns or fails where that has no address.
    os.environ.setdefault("SPARK_LOCAL_IP", LOOPBACK)
    os.environ[PUSHDOWN_VARIABLE] = "1"
