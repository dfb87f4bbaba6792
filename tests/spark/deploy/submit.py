"""Runs programs by the spark-submit of pyspark's wheel, with requite as an archive."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyspark
import pytest
from tests.spark.bulk.services import Recorded
from tests.spark.cluster import SMALL, Cluster
from tests.spark.deploy import application

from requite.spark.packing import pack

WITHIN_S = 400


@dataclass(frozen=True)
class Ended:
    """The exit code and the output of a submitted program."""

    code: int
    out: str
    err: str

    @property
    def report(self) -> Any:
        """The JSON object in the last line of the output."""
        last = self.out.rstrip().rpartition("\n")[2]
        assert last.startswith("{"), f"{self.out}\n{self.err}"
        return json.loads(last)


@dataclass(frozen=True)
class Submitted:
    """The application that all tests share: its end, its folder, and the services it called."""

    ended: Ended
    folder: Path
    recorded: Recorded

    def report(self, name: str) -> Any:
        """Return the JSON that the application wrote to a file of its folder."""
        assert self.ended.code == 0, self.ended.err
        return json.loads((self.folder / name).read_text())


def submit(
    cluster: Cluster,
    archive: Path,
    program: Path,
    *arguments: str,
    settings: Mapping[str, str] = SMALL,
    file: Path | None = None,
) -> Ended:
    """Run a program with its driver here and its executors on the cluster; wait for its end.

    The sources are on no path, so requite is imported from the archive. `file` is a file of
    settings, for those that other users must not read.
    """
    more = [] if file is None else ["--properties-file", file]
    words = [f"--conf={name}={value}" for name, value in settings.items()]
    command = Path(pyspark.__file__).parent / "bin" / "spark-submit"
    run = subprocess.run(
        [
            command,
            "--master",
            cluster.url,
            *more,
            *words,
            "--py-files",
            archive,
            program,
            *arguments,
        ],
        cwd=program.parent,
        env=os.environ | {"PYSPARK_PYTHON": sys.executable, "SPARK_LOCAL_IP": "127.0.0.1"},
        capture_output=True,
        text=True,
        timeout=WITHIN_S,
        check=False,
    )
    return Ended(run.returncode, run.stdout, run.stderr)


@pytest.fixture(scope="session")
def packed(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """Requite packed for a cluster: the archive, and the program for spark-submit."""
    return pack(tmp_path_factory.mktemp("packed"))


@pytest.fixture(scope="session")
def submitted(
    cluster: Cluster, packed: tuple[Path, Path], tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Submitted]:
    """Run the shared application: it locates requite, makes bulk calls with faults, and sweeps."""
    archive, program = packed
    folder, recorded = tmp_path_factory.mktemp("submitted"), Recorded()
    sweep = ["sweep", "--seeds", "6", "--scenario", "calm", "drain", "--to", str(folder / "sweeps")]
    words = [str(folder), recorded.url(), str(program), *sweep]
    settings = {**SMALL, **application.SPECULATION}
    try:
        ended = submit(cluster, archive, Path(application.__file__), *words, settings=settings)
        yield Submitted(ended, folder, recorded)
    finally:
        recorded.close()
