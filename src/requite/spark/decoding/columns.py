"""Arrow columns from whole buffers, for the batches of the journal decoder.

The arrays have exactly the types that Spark derives from a table's DDL. Spark refuses any other
type, even `large_string` for `string` (`pyspark.sql.worker.plan_data_source_read`).

Code that reads sound journals avoids `pyarrow.array` and `pyarrow.scalar`: they import pandas,
which costs a Python worker as much as reading a million events.
"""

from __future__ import annotations

from binascii import hexlify
from collections.abc import Sequence
from functools import lru_cache
from typing import Any, Final, NamedTuple, TypeAlias

import numpy as np
import pyarrow as pa

from requite.spark.schemas import columns_of

Array: TypeAlias = Any  # a pyarrow.Array; pyarrow is not typed
Numbers: TypeAlias = "np.ndarray[Any, Any]"

TIMESTAMP: Final = pa.timestamp("us", tz="UTC")
US_PER_DAY: Final = 86_400_000_000

_TYPES: Final = {
    "int": pa.int32(),
    "bigint": pa.int64(),
    "double": pa.float64(),
    "string": pa.string(),
    "binary": pa.binary(),
    "boolean": pa.bool_(),
    "timestamp": TIMESTAMP,
    "date": pa.date32(),
}


def arrow_types(ddl: str) -> dict[str, Any]:
    """Return the Arrow type of each column of a DDL of plain types, in order."""
    return {name: _TYPES[kind] for name, kind in columns_of(ddl).items()}


def plain(values: Numbers, kind: Any, valid: Numbers | None = None) -> Array:
    """Wrap numbers of the width of `kind` without a copy; `valid` is False for nulls."""
    buffers = [None if valid is None else bitmap(valid), pa.py_buffer(np.ascontiguousarray(values))]
    return pa.Array.from_buffers(kind, len(values), buffers)


def bitmap(valid: Numbers) -> Any:
    """Return the bitmap of an array of booleans."""
    return pa.py_buffer(np.packbits(valid, bitorder="little"))


def booleans(values: Numbers) -> Array:
    """Return booleans as a column."""
    return pa.Array.from_buffers(pa.bool_(), len(values), [None, bitmap(values)])


def texts(values: Sequence[str | None]) -> Array:
    """Return strings as a column; for short lists."""
    encoded = [b"" if value is None else value.encode() for value in values]
    offsets = np.cumsum([0, *map(len, encoded)], dtype=np.int32)
    valid = bitmap(np.array([value is not None for value in values], dtype=bool))
    buffers = [valid, pa.py_buffer(offsets), pa.py_buffer(b"".join(encoded))]
    return pa.Array.from_buffers(pa.string(), len(encoded), buffers)


class Constant(NamedTuple):
    """A column of one repeated value (None: nulls) of yet unknown length."""

    value: str | int | None
    kind: Any

    def of(self, count: int) -> Array:
        return constant(self.value, self.kind, count)


# Batches of a read have about equal sizes, and most of their columns are constant.
@lru_cache(maxsize=64)
def constant(value: str | int | None, kind: Any, count: int) -> Array:
    """Return a column of one repeated value; nulls for None."""
    if value is None:
        return pa.nulls(count, kind)
    if isinstance(value, int):
        return plain(np.full(count, value, dtype=kind.to_pandas_dtype()), kind)
    text = value.encode()
    offsets = np.arange(count + 1, dtype=np.int32) * np.int32(len(text))
    buffers = [None, pa.py_buffer(offsets), pa.py_buffer(text * count)]
    return pa.Array.from_buffers(kind, count, buffers)


def dates(us: Numbers, valid: Numbers | None = None) -> Array:
    """Return the UTC dates of instants, with a fast path if all are on one day."""
    first, last = (int(us.min()), int(us.max())) if len(us) else (0, 0)
    if valid is None and first // US_PER_DAY == last // US_PER_DAY:
        return plain(np.full(len(us), first // US_PER_DAY, dtype=np.int32), pa.date32())
    return plain((us // US_PER_DAY).astype(np.int32), pa.date32(), valid)


def hexadecimal(cells: Numbers, valid: Numbers | None = None) -> Array:
    """Return rows of bytes, shape (count, width), as hexadecimal text."""
    count, width = cells.shape
    digits = hexlify(np.ascontiguousarray(cells).data)
    offsets = np.arange(0, (count + 1) * width * 2, width * 2, dtype=np.int32)
    buffers = [None if valid is None else bitmap(valid), pa.py_buffer(offsets)]
    return pa.Array.from_buffers(pa.string(), count, [*buffers, pa.py_buffer(digits)])
