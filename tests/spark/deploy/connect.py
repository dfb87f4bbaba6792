"""A Spark Connect server on loopback, in the JVM of the test session, on a free port.

A separate server would be one more JVM to start. For clients it makes no difference: each gets its
own session, and Python workers of the server.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, Final

import pytest

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

# These must be set when the session starts.
SETTINGS: Final = {
    "spark.connect.grpc.binding.address": "127.0.0.1",
    "spark.connect.grpc.binding.port": "0",
}


@pytest.fixture(scope="session")
def connect_url(spark: SparkSession) -> Iterator[str]:
    """Start the server, and yield the URL for clients. It can be started once per JVM."""
    service = _service(spark)
    service.start(spark.sparkContext._jsc.sc())
    yield f"sc://127.0.0.1:{service.localPort()}"
    nothing = spark._jvm.scala.Option.apply(None)
    service.stop(nothing, nothing)


def _service(spark: SparkSession) -> Any:
    package = spark._jvm.org.apache.spark.sql.connect.service
    return getattr(getattr(package, "SparkConnectService$"), "MODULE$")
