"""One Spark session for the whole run of the tests: a second one would cost ten seconds more.

Its JVM also is the Connect server, and master and workers of the cluster.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Final

import pytest
from tests.spark import once
from tests.spark.cluster import cluster
from tests.spark.deploy import connect
from tests.spark.deploy.connect import connect_url
from tests.spark.deploy.submit import packed, submitted

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["cluster", "connect_url", "packed", "spark", "submitted"]

FOLDER = Path(__file__).parent


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Give every test in here more time than others: Spark has two cores, and rarely for itself."""
    for item in items:
        if FOLDER in item.path.parents and not item.get_closest_marker("timeout"):
            item.add_marker(pytest.mark.timeout(180))


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
    end_java()


def end_java() -> None:
    """End the JVM, and wait for it: so its time counts as that of the tests."""
    from pyspark import SparkContext

    gateway = SparkContext._gateway
    assert gateway is not None
    gateway.shutdown()
    gateway.proc.stdin.close()  # which is what it waits for
    gateway.proc.wait(60)


# What pyspark asks the JVM for by name, each time anew: thousands of times in a run of the
# pipeline, and Java looks through all of Spark's archives for some of them.
NAMES: Final = ("functions", "org.apache.spark.sql.functions", "PythonUtils", "PythonSQLUtils")


def start_session(folder: Path) -> SparkSession:
    from requite.spark.session import LOCAL, local_session

    java = f"{LOCAL['spark.driver.extraJavaOptions']} {once.LASTING_JAVA_OPTIONS}"
    session = local_session(
        "requite-tests",
        cores=2,
        conf={
            **once.SQL,
            **connect.SETTINGS,
            "spark.driver.extraJavaOptions": java,
            "spark.sql.warehouse.dir": str(folder / "warehouse"),
            "spark.local.dir": str(folder / "local"),
        },
    )
    jvm = session._jvm
    for name in NAMES:
        setattr(jvm, name, getattr(jvm, name))
    return session
