"""spark-submit from pyspark's wheel, with requite as an archive."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyspark
from tests.spark.cluster import SMALL, Cluster

WITHIN_S = 400


@dataclass(frozen=True)
class Ended:
    """How a submitted program ended."""

    code: int
    out: str
    err: str

    @property
    def told(self) -> Any:
        """What its last line says."""
        last = self.out.rstrip().rpartition("\n")[2]
        assert last.startswith("{"), f"{self.out}\n{self.err}"
        return json.loads(last)


def submit(cluster: Cluster, archive: Path, program: Path, *arguments: str) -> Ended:
    """Run a program with its driver here and its executors on the cluster; wait for its end.

    Nothing puts the sources on a path: it is the archive that brings requite along.
    """
    settings = {k: v for k, v in SMALL.items() if k != "spark.executorEnv.PYTHONPATH"}
    words = [f"--conf={name}={value}" for name, value in settings.items()]
    command = Path(pyspark.__file__).parent / "bin" / "spark-submit"
    run = subprocess.run(
        [command, "--master", cluster.url, *words, "--py-files", archive, program, *arguments],
        cwd=program.parent,
        env=os.environ | {"PYSPARK_PYTHON": sys.executable, "SPARK_LOCAL_IP": "127.0.0.1"},
        capture_output=True,
        text=True,
        timeout=WITHIN_S,
        check=False,
    )
    return Ended(run.returncode, run.stdout, run.stderr)
