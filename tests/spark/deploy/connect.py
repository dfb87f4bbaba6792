"""A Spark Connect server from pyspark's wheel, on loopback, on a port that was free."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pyspark
from tests.spark import once
from tests.support.live import eventually

from requite.spark.session import LOCAL, prepare_environment

_SERVER = "org.apache.spark.sql.connect.service.SparkConnectServer"
_START_S = 120.0
_SETTINGS = {
    **once.SQL,
    "spark.connect.grpc.binding.address": "127.0.0.1",
    "spark.connect.grpc.binding.port": "0",
    "spark.driver.memory": "1g",
}


class ConnectServer:
    """The server; `url` is where clients find it. What it logs goes to a file."""

    def __init__(self, folder: Path) -> None:
        prepare_environment()
        folder.mkdir(parents=True, exist_ok=True)
        self._log = folder / "log"
        settings = {**LOCAL, **_SETTINGS, "spark.log.level": "INFO"}
        # Not LOCAL's: those silence the line that tells the port.
        settings["spark.driver.extraJavaOptions"] = once.JAVA_OPTIONS
        words = [f"--conf={name}={value}" for name, value in settings.items()]
        command = Path(pyspark.__file__).parent / "bin" / "spark-submit"
        with self._log.open("wb") as log:
            self._process = subprocess.Popen(
                [command, "--master", "local[2]", "--class", _SERVER, *words, "spark-internal"],
                cwd=folder,
                env=os.environ | {"PYSPARK_PYTHON": sys.executable},
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
            )
        try:
            self.url = f"sc://127.0.0.1:{self._await_port()}"
        except BaseException:
            self.end()
            raise

    def _await_port(self) -> str:
        def look() -> re.Match[str] | None:
            text = self._log.read_text()
            assert self._process.poll() is None, text
            return re.search(r"Spark Connect server started at: \S*?:(\d+)\b", text)

        found = eventually(look, "the port of the Spark Connect server", _START_S)
        assert found is not None
        return found[1]

    def end(self) -> None:
        """Ask it to end, and wait until it has."""
        self._process.terminate()
        try:
            self._process.wait(20)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait(20)
