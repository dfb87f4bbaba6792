"""What spark-submit runs in a test: tells from where driver and executors have requite, as JSON."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pyarrow as pa
from pyspark.sql import SparkSession

import requite


def tell(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Tell which file the executor's requite is."""
    import requite

    for _ in batches:
        yield pa.RecordBatch.from_pydict({"place": [requite.__file__]})


def main() -> None:
    spark = SparkSession.builder.getOrCreate()
    told: Any = spark.range(4, numPartitions=4).mapInArrow(tell, "place string").collect()
    executors = sorted({row.place for row in told})
    print(json.dumps({"driver": requite.__file__, "executors": executors}), flush=True)


if __name__ == "__main__":
    main()
