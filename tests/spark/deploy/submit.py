"""spark-submit from pyspark's wheel, with requite as an archive."""

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


@dataclass(frozen=True)
class Submitted:
    """How the application ended that all tests share, what it left in its folder, and what the
    services saw that it called."""

    ended: Ended
    folder: Path
    recorded: Recorded

    def told(self, name: str) -> Any:
        """Return what it wrote to a file."""
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

    Nothing puts the sources on a path: it is the archive that brings requite along. `file` has
    settings that nobody else should read.
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
    """The one application: it tells where requite is, makes calls in trouble, and a sweep."""
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
