"""One Spark session for all tests of a run; a second one would take ten more seconds.

Its JVM also runs the Connect server, and the master and the workers of the cluster.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Final

import pytest
from tests.spark import spark_settings
from tests.spark.cluster import cluster
from tests.spark.deploy import connect
from tests.spark.deploy.connect import connect_url
from tests.spark.deploy.submit import packed, submitted

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["cluster", "connect_url", "packed", "spark", "submitted"]

FOLDER = Path(__file__).parent


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Set the timeout of tests in this folder to 180 s: Spark has two cores, and shares them."""
    for item in items:
        if FOLDER in item.path.parents and not item.get_closest_marker("timeout"):
            item.add_marker(pytest.mark.timeout(180))


@pytest.fixture(scope="session")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    """Start a session with two cores and small shuffles that writes only to temporary folders."""
    folder: Path = tmp_path_factory.mktemp("spark")
    with warnings.catch_warnings():
        # Warnings of pyspark itself, while it is imported and started.
        warnings.simplefilter("ignore")
        session = start_session(folder)
    yield session
    session.stop()
    end_java()


def end_java() -> None:
    """Stop the JVM and wait for its exit, so that its processor time counts for the tests."""
    from pyspark import SparkContext

    gateway = SparkContext._gateway
    assert gateway is not None
    gateway.shutdown()
    gateway.proc.stdin.close()  # the JVM exits at the end of its input
    gateway.proc.wait(60)


# pyspark looks these names up in the JVM thousands of times in a run of the pipeline. For some of
# them Java searches all of Spark's archives, so they are looked up once and cached.
NAMES: Final = ("functions", "org.apache.spark.sql.functions", "PythonUtils", "PythonSQLUtils")


def start_session(folder: Path) -> SparkSession:
    from requite.spark.session import LOCAL, local_session

    java = f"{LOCAL['spark.driver.extraJavaOptions']} {spark_settings.LASTING_JAVA_OPTIONS}"
    session = local_session(
        "requite-tests",
        cores=2,
        conf={
            **spark_settings.SQL,
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
