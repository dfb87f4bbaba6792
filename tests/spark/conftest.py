"""One Spark session for the whole run of the tests: a second one would cost ten seconds more."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from tests.spark.cluster import cluster

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["cluster", "spark"]


@pytest.fixture(scope="session")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    """Two cores, tiny shuffles, nothing outside the test's own folders."""
    folder: Path = tmp_path_factory.mktemp("spark")
    with warnings.catch_warnings():
        # What pyspark does while it is imported and started is not ours to mend.
        warnings.simplefilter("ignore")
        session = start_session(folder)
    yield session
    session.stop()


def start_session(folder: Path) -> SparkSession:
    from requite.spark.session import LOCAL, local_session

    # Tests run everything once or twice: compilers meant for long runs cost twice what they save.
    java = f"{LOCAL['spark.driver.extraJavaOptions']} -XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
    return local_session(
        "requite-tests",
        cores=2,
        conf={
            "spark.driver.extraJavaOptions": java,
            "spark.sql.shuffle.partitions": "2",
            "spark.sql.codegen.wholeStage": "false",
            "spark.sql.codegen.factoryMode": "NO_CODEGEN",
            "spark.sql.warehouse.dir": str(folder / "warehouse"),
            "spark.local.dir": str(folder / "local"),
        },
    )
