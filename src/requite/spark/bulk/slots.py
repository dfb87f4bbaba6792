"""The number of tasks that Spark may run at a time, from its settings."""

from __future__ import annotations

import os
import re
from typing import TYPE_CHECKING, Final

from requite.errors import ConfigurationError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_LOCAL: Final = re.compile(r"local(?:\[(\*|\d+)(?:,\d+)?\])?")
_LOCAL_CLUSTER: Final = re.compile(r"local-cluster\[(\d+),(\d+),\d+\]")


def task_slots(spark: SparkSession) -> int:
    """Return the number of task slots; raise `ConfigurationError` if settings do not say it."""

    def number(name: str) -> int | None:
        value = spark.conf.get(name, None)
        return int(value) if value else None

    cores = _cores(spark.conf.get("spark.master", None) or "")
    if cores is None:
        cores = number("spark.cores.max")
    if cores is None:
        executors = number("spark.dynamicAllocation.maxExecutors")
        executors = executors or number("spark.executor.instances")
        per_executor = number("spark.executor.cores")
        cores = executors * per_executor if executors and per_executor else None
    if cores is None:
        raise ConfigurationError(
            "Spark's settings do not say how many tasks may run at a time"
            " (spark.cores.max, or spark.executor.instances and spark.executor.cores):"
            " pass task_slots=... with in_flight_max"
        )
    return max(1, cores // (number("spark.task.cpus") or 1))


def _cores(master: str) -> int | None:
    if found := _LOCAL.fullmatch(master):
        cores = found[1] or "1"
        return (os.cpu_count() or 1) if cores == "*" else int(cores)
    if found := _LOCAL_CLUSTER.fullmatch(master):
        return int(found[1]) * int(found[2])
    return None
