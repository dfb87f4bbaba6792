"""Find the nearest neighbour of every airport on Earth, with one request per airport.

    requite broker &
    requite worker requite.examples:nearest --connect mdp://127.0.0.1:5555 &
    python examples/neighbours.py mdp://127.0.0.1:5555 /tmp/neighbours

A bulk call from a DataFrame: some 28,000 rows from the package `airportsdata`, each a request to
the service `nearest`. The replies are written to Parquet. A sample is compared with a direct
computation: numpy computes all distances on the sphere, while the service searches a tree. Requires
the extras `spark` and `demo`.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Final

import airportsdata
import numpy as np

import requite.spark
from requite.spark.session import local_session

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

EARTH_RADIUS_M: Final = 6_371_008.8  # the mean radius of WGS 84 (IUGG), as the service has it
ANSWER: Final = "nearest array<struct<icao: string, name: string, country: string, metres: bigint>>"
CHECKED: Final = 2_000


def main(arguments: Sequence[str]) -> int:
    """Make the calls, check a sample, and print the most remote airports."""
    given = parse(arguments)
    spark = local_session("neighbours", cores=2)
    try:
        found = enrich(spark, given.broker, given.folder, given.rows)
        found.groupBy("status").count().orderBy("status").show()
        found.orderBy("metres", ascending=False).select("icao", "name", "neighbour", "metres").show(
            5, truncate=False
        )
        wrong = compare(found)
    finally:
        spark.stop()
    print("\n".join(wrong) or "the service and the direct computation agree")
    return int(bool(wrong))


def parse(arguments: Sequence[str]) -> argparse.Namespace:
    """Read the command line."""
    parser = argparse.ArgumentParser(description="The nearest neighbour of every airport.")
    parser.add_argument("broker", help="URL of the broker, such as mdp://127.0.0.1:5555")
    parser.add_argument("folder", help="new folder for rows and replies")
    parser.add_argument("--rows", type=int, help="number of airports (default: all)")
    return parser.parse_args(arguments)


def enrich(spark: SparkSession, broker: str, folder: str, rows: int | None = None) -> DataFrame:
    """Return airports with the code of their nearest neighbour and its distance in metres."""
    from pyspark.sql import functions as F

    asked = airports(spark, rows).withColumn("request", F.concat("icao", F.lit(" 1")))
    answered = requite.spark.call_to(
        asked, folder, broker, service="nearest", body="request", key="icao", job="neighbours"
    )
    answer = F.from_json(F.col("reply").cast("string"), ANSWER)["nearest"][0]
    return answered.select("*", answer["icao"].alias("neighbour"), answer["metres"].alias("metres"))


def airports(spark: SparkSession, rows: int | None = None) -> DataFrame:
    """Return the airports of the package, or the first `rows` of them."""
    table = list(airportsdata.load().values())[:rows]
    columns = "icao string, name string, country string, lat double, lon double"
    names = [column.split()[0] for column in columns.split(", ")]
    return spark.createDataFrame([[row[name] for name in names] for row in table], columns)


# --- the same computation without the service -----------------------------------------------------
def compare(found: DataFrame, checked: int = CHECKED) -> list[str]:
    """Compare a regular sample of rows with numpy's result; return a line per difference."""
    replied = {row.icao: (row.neighbour, row.metres) for row in found.collect()}
    step = max(1, len(replied) // checked)
    wrong = []
    for icao, expected in directly(sorted(replied)[::step]).items():
        if replied[icao] != expected:
            wrong.append(f"{icao}: the service says {replied[icao]}, numpy {expected}")
    return wrong


def directly(codes: list[str]) -> dict[str, tuple[str, int]]:
    """Return the nearest neighbour of each code and its distance in metres, from all distances.

    Of several neighbours at the same distance in whole metres, return the first by code.
    """
    table = airportsdata.load()
    names = np.array(sorted(table))
    places = _on_sphere(np.array([(table[name]["lat"], table[name]["lon"]) for name in names]))
    found = {}
    for code in codes:
        here = int(np.searchsorted(names, code))
        chords = np.linalg.norm(places - places[here], axis=1)
        metres = np.rint(2 * EARTH_RADIUS_M * np.arcsin(np.minimum(1, chords / 2))).astype(int)
        metres[here] = sys.maxsize
        nearest = int(np.argmin(metres))
        found[code] = (str(names[nearest]), int(metres[nearest]))
    return found


def _on_sphere(degrees: Any) -> Any:
    latitude, longitude = np.radians(degrees).T
    across = np.cos(latitude)
    parts = (across * np.cos(longitude), across * np.sin(longitude), np.sin(latitude))
    return np.stack(parts, axis=1)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
