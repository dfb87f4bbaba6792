"""A standalone cluster on loopback, from the classes in pyspark's wheel: a master and two workers.

The workers have addresses of their own (127.0.0.1 and 127.0.0.2), since Spark starts a speculative
copy of a task only on another host than the task's.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pytest
from tests.spark import once
from tests.support.live import ROOT, eventually

START_S: Final = 120.0
HOSTS: Final = ("127.0.0.1", "127.0.0.2")


class Daemon:
    """A process of the cluster; what it logs goes to a file."""

    def __init__(self, folder: Path, host: str, name: str, *arguments: str) -> None:
        import pyspark

        spark_class = Path(pyspark.__file__).parent / "bin" / "spark-class"
        folder.mkdir(parents=True)
        self._log = folder / "log"
        environment = os.environ | {
            "SPARK_LOCAL_IP": host,
            "SPARK_DAEMON_MEMORY": "256m",
            "SPARK_DAEMON_JAVA_OPTS": once.JAVA_OPTIONS,
            "SPARK_WORKER_DIR": str(folder),
            "PYSPARK_PYTHON": sys.executable,
        }
        environment.pop("SPARK_CONF_DIR", None)
        with self._log.open("wb") as log:
            self._process = subprocess.Popen(
                [str(spark_class), f"org.apache.spark.deploy.{name}", *arguments],
                cwd=folder,
                env=environment,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
            )

    def await_log(self, pattern: str) -> re.Match[str]:
        """Wait for a line in its log."""

        def look() -> re.Match[str] | None:
            assert self._process.poll() is None, self._log.read_text()
            return re.search(pattern, self._log.read_text())

        found = eventually(look, f"{pattern!r} in {self._log}", START_S)
        assert found is not None
        return found

    def end(self) -> None:
        """Ask it to end, and wait until it has; workers end their executors."""
        self._process.terminate()
        try:
            self._process.wait(20)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait(20)


class Cluster:
    """A master and one worker per host, with `cores` each."""

    def __init__(self, folder: Path, cores: int = 1) -> None:
        from requite.spark.session import prepare_environment

        prepare_environment()
        self._daemons: list[Daemon] = []
        try:
            self.url = self._start_master(folder / "master")
            for number, host in enumerate(HOSTS):
                self._start_worker(folder / f"worker-{number}", host, cores)
            for worker in self._daemons[1:]:
                worker.await_log("Successfully registered with master")
        except BaseException:
            self.end()
            raise

    def _start_master(self, folder: Path) -> str:
        arguments = ("--host", HOSTS[0], "--port", "0", "--webui-port", "0")
        master = Daemon(folder, HOSTS[0], "master.Master", *arguments)
        self._daemons.append(master)
        port = master.await_log(r"service 'sparkMaster' on port (\d+)")[1]
        return f"spark://{HOSTS[0]}:{port}"

    def _start_worker(self, folder: Path, host: str, cores: int) -> None:
        limits = ("--cores", str(cores), "--memory", "1g", "--webui-port", "0")
        arguments = ("--host", host, "--port", "0", *limits, "--work-dir", str(folder), self.url)
        self._daemons.append(Daemon(folder, host, "worker.Worker", *arguments))

    def end(self) -> None:
        """End the workers, then the master."""
        while self._daemons:
            self._daemons.pop().end()


# What a driver on the cluster sets so that its executors are small.
SMALL: Final = {
    **once.SQL,
    "spark.executor.memory": "512m",
    "spark.executor.extraJavaOptions": once.JAVA_OPTIONS,
    "spark.driver.memory": "512m",
    "spark.driver.extraJavaOptions": once.JAVA_OPTIONS,
    "spark.ui.enabled": "false",
    "spark.driver.host": HOSTS[0],
    "spark.driver.bindAddress": HOSTS[0],
    "spark.executorEnv.PYTHONPATH": str(ROOT),
}


@pytest.fixture(scope="session")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """The cluster that all tests of a run share; one core on each host."""
    cluster = Cluster(tmp_path_factory.mktemp("cluster"))
    yield cluster
    cluster.end()
