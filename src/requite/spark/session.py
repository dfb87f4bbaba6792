"""Spark sessions for requite: in this process, on a cluster, or over Spark Connect.

`local_session` starts Spark inside this process, without console output and on loopback only. Code
that creates its own session passes the builder through `configure`, which sets only what the
pipeline requires. `open_session` creates a session from the options of a command (`Settings`).
"""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Final

from requite.errors import ConfigurationError, SparkFailed
from requite.spark.java import ensure_java

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

LOOPBACK: Final = "127.0.0.1"

# What requite's tables and functions require; each can be set on a running session.
NEEDED: Final[Mapping[str, str]] = {
    # Instants are UTC, regardless of the machine's time zone; `date` depends on it.
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.execution.arrow.pyspark.enabled": "true",
    # Lets `format("requite")` skip what a filter excludes; see `requite.spark.source`.
    "spark.sql.python.filterPushdown.enabled": "true",
    # The streaming audit needs timers, which the default state store lacks.
    "spark.sql.streaming.stateStore.providerClass": (
        "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider"
    ),
}

# In an archive on an executor a module's path is relative; the file is not read there.
_LOG_SETTINGS: Final = Path(__file__).absolute().with_name("log4j2.properties")

# A session inside this process: loopback only, without console output.
LOCAL: Final[Mapping[str, str]] = {
    "spark.driver.host": LOOPBACK,
    "spark.driver.bindAddress": LOOPBACK,
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    # Spark gets lists of files; by default it starts a job to check as few as 33.
    "spark.sql.sources.parallelPartitionDiscovery.threshold": "10000",
    # Recording Python lines for error messages doubles the calls to the JVM.
    "spark.python.sql.dataFrameDebugging.enabled": "false",
    # ICU's tables for case mapping take 2 s to load; Java's own mapping is sufficient.
    "spark.sql.icu.caseMappings.enabled": "false",
    "spark.driver.extraJavaOptions": f"-Dlog4j2.configurationFile={_LOG_SETTINGS.as_uri()}",
}

# For a process that runs each query once, and exits. Java's second compiler does not pay off there:
# without it a run over 1 million events takes 75 s of processor time instead of 89, over 3 million
# 125 s instead of 139, and with 1 % of new events 32 s instead of 57.
ONCE: Final[Mapping[str, str]] = {
    "spark.driver.extraJavaOptions": (
        f"{LOCAL['spark.driver.extraJavaOptions']} -XX:TieredStopAtLevel=1"
    ),
}

_ERROR_LOGGERS: Final = ("DataFrameQueryContextLogger", "SQLQueryContextLogger")

# Tells Spark's planning processes that filter push-down is on: they cannot see the session, and
# offering push-down where it is off makes every read fail.
PUSHDOWN_VARIABLE: Final = "REQUITE_SPARK_PUSHDOWN"


# Of a local session. For small tables, a task costs more than it gains, so there are few.
_PARTITIONS_LEAST, _PARTITIONS_MOST = 4, 64
_HEAP_LEAST_MB, _HEAP_PER_CORE_MB = 2048, 256

_CONNECT: Final = "sc://"
_LOCAL_MASTER: Final = re.compile(r"local(?:\[(\d+|\*)(?:, *\d+)?\])?")
_MASTER: Final = re.compile(r"yarn$|(spark|k8s|sc)://.|local-cluster\[")
_HEAP: Final = re.compile(r"\d+[kmgt]b?", re.IGNORECASE)
_SECRET: Final = re.compile(r"secret|password|token|access[._-]?key", re.IGNORECASE)
_SUBMITTED: Final = "PYSPARK_GATEWAY_PORT"  # spark-submit starts Java before our program


def configure(builder: SparkSession.Builder) -> SparkSession.Builder:
    """Set what requite's tables require on any session's builder; return the builder."""
    for key, value in NEEDED.items():
        builder = builder.config(key, value)
    return builder


def local_session(
    app_name: str = "requite", *, cores: int | str = "*", conf: Mapping[str, str] | None = None
) -> SparkSession:
    """Start Spark in this process on `cores` threads, or return the running session.

    `conf` overrides requite's settings. There is one session per process: a second call returns the
    first session, on which only SQL settings still take effect. Raises `JavaMissing` without a
    usable Java.
    """
    from pyspark.sql import SparkSession

    if not is_running():
        prepare_environment()
    builder = configure(SparkSession.builder.appName(app_name).master(f"local[{cores}]"))
    return _made(builder, {**LOCAL, **sized(cores), **(conf or {})})


def is_running() -> bool:
    """Return whether this process has a session, which `open_session` would return."""
    from pyspark.sql import SparkSession

    return SparkSession.getActiveSession() is not None


def sized(cores: int | str) -> dict[str, str]:
    """Return the settings of a local session that depend on its number of threads."""
    count = (os.cpu_count() or 1) if cores == "*" else int(cores)
    return {
        "spark.driver.memory": f"{max(_HEAP_LEAST_MB, count * _HEAP_PER_CORE_MB)}m",
        "spark.sql.shuffle.partitions": str(min(max(_PARTITIONS_LEAST, count), _PARTITIONS_MOST)),
    }


def _made(builder: SparkSession.Builder, conf: Mapping[str, str]) -> SparkSession:
    for key, value in conf.items():
        builder = builder.config(key, value)
    try:
        return builder.getOrCreate()
    except Exception as error:  # from pyspark, py4j or grpc
        said = next(iter(str(error).splitlines()), "") or type(error).__name__
        raise SparkFailed(
            f"Spark did not start: {said.rstrip('.')}. Check the master, the heap and the"
            " settings (--master, --heap, --conf); see also Java's output above"
        ) from error


@dataclass(frozen=True, slots=True)
class Settings:
    """The options of every command that starts Spark.

    `master` is Spark's (`local[2]`, `spark://…`) or a Connect server (`sc://…`); None: this
    process, or the master of `spark-submit`. `heap` is the Java heap where tasks run: of this
    process, or of each executor. `partitions` is the number of tasks per shuffle. `conf` overrides
    the others.
    """

    master: str | None = None
    conf: Mapping[str, str] = field(default_factory=dict)
    heap: str | None = None
    partitions: int | None = None

    @classmethod
    def from_options(
        cls,
        master: str | None = None,
        conf: Iterable[str] | None = None,
        heap: str | None = None,
        partitions: int | None = None,
    ) -> Settings:
        """Check the options. Raises `ConfigurationError`, which names the invalid one."""
        if heap is not None and not _HEAP.fullmatch(heap):
            raise ConfigurationError(f"--heap: {heap!r} is not a memory size; write it like 4g")
        if partitions is not None and partitions < 1:
            raise ConfigurationError("--partitions must be at least 1")
        if master is not None and not (_LOCAL_MASTER.fullmatch(master) or _MASTER.match(master)):
            raise ConfigurationError(
                f"--master: {master!r} is not a Spark master; write local[2],"
                " spark://HOST:PORT, k8s://HOST:PORT, sc://HOST:PORT, or yarn"
            )
        return cls(master, dict(map(_setting, conf or ())), heap, partitions)

    @property
    def is_local(self) -> bool:
        """Whether Spark runs in this process."""
        return self.master is None or _LOCAL_MASTER.fullmatch(self.master) is not None

    def record(self, heap_of: str) -> dict[str, str]:
        """Return the options as Spark settings; `heap_of` names the setting for the heap."""
        partitions = None if self.partitions is None else str(self.partitions)
        found = {heap_of: self.heap, "spark.sql.shuffle.partitions": partitions}
        given = {name: value for name, value in found.items() if value is not None}
        return {**given, **self.conf}


def _setting(text: str) -> tuple[str, str]:
    name, separator, value = text.partition("=")
    if not separator or not name.startswith("spark."):
        raise ConfigurationError(
            f"--conf: {text!r} is not a setting; write it like spark.NAME=VALUE"
        )
    if _SECRET.search(name):
        raise ConfigurationError(
            f"--conf {name}: other users can read a command line; set it in the environment, or in "
            "spark-defaults.conf"
        )
    return name, value


def open_session(
    app_name: str, settings: Settings, more: Mapping[str, str] | None = None
) -> SparkSession:
    """Start Spark, or connect to it, by `settings`, which override `more`.

    Raises `ConfigurationError` if one cannot take effect, `JavaMissing` without a usable Java.
    """
    from pyspark.sql import SparkSession

    builder = SparkSession.builder.appName(app_name)
    if os.environ.get(_SUBMITTED):
        return _made(configure(_named(builder, settings)), _submitted(settings, more or {}))
    if settings.is_local:
        cores = _LOCAL_MASTER.fullmatch(settings.master or "local[*]")
        assert cores is not None
        conf = {**(more or {}), **settings.record("spark.driver.memory")}
        return local_session(app_name, cores=cores[1] or 1, conf=conf)
    assert settings.master is not None
    if settings.master.startswith(_CONNECT):
        if settings.heap is not None:
            raise ConfigurationError(
                "--heap has no effect on a Connect server: set its heap where it is started"
            )
        return _made(configure(builder.remote(settings.master)), settings.record(""))
    prepare_environment()
    conf = {**(more or {}), **settings.record("spark.executor.memory")}
    return _made(configure(_named(builder, settings)), conf)


def _named(builder: SparkSession.Builder, settings: Settings) -> SparkSession.Builder:
    return builder if settings.master is None else builder.master(settings.master)


def _submitted(settings: Settings, more: Mapping[str, str]) -> dict[str, str]:
    from pyspark import SparkConf

    master = settings.master or SparkConf().get("spark.master") or "local"
    if settings.heap is not None and _LOCAL_MASTER.fullmatch(master):
        raise ConfigurationError(
            "--heap has no effect, since Java is running: pass --driver-memory to spark-submit"
        )
    return {**more, **settings.record("spark.executor.memory")}


def prepare_environment() -> None:
    """Set the environment variables of Spark's scripts and workers: Java, Python, addresses.

    Also disables pyspark's logging of query errors to stderr with Java's stack trace, which the
    exception contains.
    """
    from pyspark.logger import PySparkLogger

    for name in _ERROR_LOGGERS:
        PySparkLogger.getLogger(name).disabled = True
    ensure_java()
    # Workers run this Python, with its installed packages.
    os.environ["PYSPARK_PYTHON"] = os.environ["PYSPARK_DRIVER_PYTHON"] = sys.executable
    # Otherwise Spark resolves the machine's name, and warns or fails if it has no address.
    os.environ.setdefault("SPARK_LOCAL_IP", LOOPBACK)
    os.environ[PUSHDOWN_VARIABLE] = "1"
