"""Dates and times of Spark that Python or JSON cannot express."""

from __future__ import annotations

from datetime import datetime

import msgspec
import pyarrow as pa
import pytest
from pyspark.sql.types import DataType, DateType, TimestampType

from requite.spark.typed.encoding import Encoder
from requite.typed.codec import JSON

_TIME = {"type": "string", "format": "date-time"}


@pytest.mark.parametrize(
    ("kind", "schema", "arrow"),
    [
        (DateType(), {"type": "string", "format": "date"}, pa.date32()),
        (TimestampType(), _TIME, pa.timestamp("us", tz="UTC")),
    ],
)
def test_a_date_out_of_range_makes_one_bad_row(
    kind: DataType, schema: dict[str, str], arrow: pa.DataType
) -> None:
    far = 3_000_000 if isinstance(kind, DateType) else 253_402_300_800_000_000
    bodies, faults = Encoder(kind, schema, {}, JSON).encode(pa.array([0, far, None], arrow))
    assert bodies[0] is not None
    assert bodies[1:] == [None, None]
    assert faults == {1: "the body cannot be encoded: a date or time is out of range"}


def test_a_local_mean_time_is_the_same_instant() -> None:
    column = pa.array([-5_364_662_400_000_000], pa.timestamp("us", tz="Europe/Zurich"))
    [body], _faults = Encoder(TimestampType(), _TIME, {}, JSON).encode(column)
    assert body is not None
    assert msgspec.json.decode(body, type=datetime) == column[0].as_py()
