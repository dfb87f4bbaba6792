"""A standalone cluster on loopback: a master and two workers in the JVM of the test session.

Only the executors are separate processes: three daemons would be three more JVMs to start. The
workers have different addresses (127.0.0.1 and 127.0.0.2), because Spark starts a speculative copy
of a task only on another host.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import pytest
from tests.spark import spark_settings

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

HOSTS: Final = ("127.0.0.1", "127.0.0.2")
_CORES, _MEMORY_MB = 1, 1024
_ANY_PORT: Final = 0


class Cluster:
    """A master and one worker per host, with one core each; `url` is the address of the master."""

    def __init__(self, spark: SparkSession, folder: Path) -> None:
        jvm = spark._jvm
        self._deploy = jvm.org.apache.spark.deploy
        self._conf = jvm.org.apache.spark.SparkConf(False)
        self._none = jvm.scala.Option.apply(None)
        self._endpoints: list[Any] = []
        try:
            self.url = self._start_master()
            urls = spark.sparkContext._gateway.new_array(jvm.java.lang.String, 1)
            urls[0] = self.url
            for host in HOSTS:
                self._start_worker(folder / host, host, urls)
        except BaseException:
            self.end()
            raise

    def _start_master(self) -> str:
        start = self._deploy.master.Master.startRpcEnvAndEndpoint
        started = start(HOSTS[0], _ANY_PORT, _ANY_PORT, self._conf)
        self._endpoints.append(started._1())
        return f"spark://{HOSTS[0]}:{started._1().address().port()}"

    def _start_worker(self, folder: Path, host: str, urls: Any) -> None:
        folder.mkdir(parents=True)
        start = self._deploy.worker.Worker.startRpcEnvAndEndpoint
        limits = (_CORES, _MEMORY_MB)
        more = (self._none, self._conf, self._none)
        worker = start(host, _ANY_PORT, _ANY_PORT, *limits, urls, str(folder), *more)
        self._endpoints.append(worker)

    def end(self) -> None:
        """Stop the workers with their executors, then the master."""
        while self._endpoints:
            endpoint = self._endpoints.pop()
            endpoint.shutdown()
            endpoint.awaitTermination()


# Settings of a driver on the cluster, for small executors.
SMALL: Final = {
    **spark_settings.SQL,
    "spark.executor.memory": "512m",
    "spark.executor.extraJavaOptions": spark_settings.JAVA_OPTIONS,
    "spark.driver.memory": "512m",
    "spark.driver.extraJavaOptions": spark_settings.JAVA_OPTIONS,
    "spark.ui.enabled": "false",
    "spark.driver.host": HOSTS[0],
    "spark.driver.bindAddress": HOSTS[0],
}


@pytest.fixture(scope="session")
def cluster(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """The cluster that all tests of a run share; one core on each host."""
    cluster = Cluster(spark, tmp_path_factory.mktemp("cluster"))
    yield cluster
    cluster.end()
