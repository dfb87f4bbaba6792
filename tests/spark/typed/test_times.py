"""Dates and times of Spark that Python or JSON cannot express."""

from __future__ import annotations

from datetime import UTC, datetime

import msgspec
import pyarrow as pa
import pytest
from pyspark.sql.types import (
    ArrayType,
    DataType,
    DateType,
    StructField,
    StructType,
    TimestampNTZType,
    TimestampType,
)

from requite.errors import BadReply
from requite.spark.typed.decoding import Decoder
from requite.spark.typed.encoding import Encoder
from requite.typed.codec import JSON, MSGPACK

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


def test_no_time_of_a_reply_is_rounded() -> None:
    time, local = (Decoder(kind(), _TIME, {}, "json") for kind in (TimestampType, TimestampNTZType))
    exact = datetime(2020, 1, 1, microsecond=123456)
    assert time.decode(b'"2020-01-01T00:00:00.123456000Z"', 1) == exact.replace(tzinfo=UTC)
    assert local.decode(b'"2020-01-01T00:00:00.123456000"', 1) == exact
    for decoder, zone in ((time, b"Z"), (time, b"+01:00"), (local, b"")):
        for digits in (b"123456789", b"0000001", b"9999999"):
            with pytest.raises(BadReply, match="finer than a microsecond"):
                decoder.decode(b'"2020-01-01T00:00:00.%b%b"' % (digits, zone), 1)
    with pytest.raises(BadReply, match="with no timezone"):
        local.decode(b'"2020-01-01T00:00:00Z"', 1)
    with pytest.raises(BadReply, match="with a timezone"):
        time.decode(b'"2020-01-01T00:00:00"', 1)
    with pytest.raises(BadReply):
        time.decode(b"5", 1)


@pytest.mark.parametrize(
    ("kind", "value"),
    [
        (TimestampType(), datetime(2020, 1, 1, microsecond=123456, tzinfo=UTC)),
        (TimestampNTZType(), datetime(2020, 1, 1, microsecond=123456)),
    ],
)
def test_times_of_messagepack_are_read(kind: DataType, value: datetime) -> None:
    assert Decoder(kind, _TIME, {}, "msgpack").decode(MSGPACK.encode(value), 1) == value


def timestamp(seconds: int, nanoseconds: int, *, is_long: bool) -> bytes:
    """Return a time of MessagePack, as the extension with 8 or 12 bytes."""
    if is_long:
        return b"\xc7\x0c\xff" + nanoseconds.to_bytes(4, "big") + seconds.to_bytes(8, "big")
    return b"\xd7\xff" + (nanoseconds << 34 | seconds).to_bytes(8, "big")


@pytest.mark.parametrize("is_long", [False, True])
def test_no_time_of_messagepack_is_rounded(is_long: bool) -> None:
    kind = StructType([StructField("at", ArrayType(TimestampType()))])
    schema = {
        "type": "object",
        "properties": {"at": {"type": "array", "items": _TIME}, "more": {}},
        "required": ["at"],
    }
    decoder = Decoder(kind, schema, {}, "msgpack")
    exact = datetime(2020, 1, 1, microsecond=123456, tzinfo=UTC)
    seconds = int(exact.timestamp())

    def reply(*nanoseconds: int) -> bytes:
        times = [timestamp(seconds, each, is_long=is_long) for each in nanoseconds]
        head = MSGPACK.encode({"more": ["\xd7\xff", b"\xd7\xff" * 9], "at": []})[:-1]
        return head + bytes([0x90 + len(times)]) + b"".join(times)

    assert decoder.decode(reply(123_456_000, 123_456_000), 1) == {"at": [exact, exact]}
    for fine in (123_456_789, 123_456_001, 999_999_999):
        with pytest.raises(BadReply, match=f"a time with {fine} ns is finer than a microsecond"):
            decoder.decode(reply(123_456_000, fine), 1)
