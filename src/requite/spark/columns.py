"""Arrow columns made of whole buffers: what the decoder of journals builds its batches from.

The arrays have exactly the types that Spark derives from a table's DDL. It refuses a batch of any
other, even `large_string` for `string` (`pyspark.sql.worker.plan_data_source_read`).
"""

from __future__ import annotations

from typing import Any, Final, TypeAlias

import numpy as np
import pyarrow as pa

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
    "timestamp": TIMESTAMP,
    "date": pa.date32(),
}

_HEX: Final = np.frombuffer(b"".join(b"%02x" % byte for byte in range(256)), dtype=np.uint16)


def arrow_types(ddl: str) -> dict[str, Any]:
    """Return the Arrow type of each column of a DDL of plain types, in order."""
    return {name: _TYPES[kind] for name, kind in columns_of(ddl).items()}


def columns_of(ddl: str) -> dict[str, str]:
    """Return the type of each column of a DDL of plain types, in order."""
    pairs = (column.split() for column in ddl.split(","))
    return {name: kind for name, kind in pairs}  # noqa: C416 - says that there are two


def plain(values: Numbers, kind: Any, valid: Numbers | None = None) -> Array:
    """Wrap numbers, whose items have the width of `kind`, without a copy; `valid` tells nulls."""
    buffers = [None if valid is None else bitmap(valid), pa.py_buffer(np.ascontiguousarray(values))]
    return pa.Array.from_buffers(kind, len(values), buffers)


def bitmap(valid: Numbers) -> Any:
    """Return the validity bitmap of an array of booleans."""
    return pa.py_buffer(np.packbits(valid, bitorder="little"))


def constant(value: object, kind: Any, count: int) -> Array:
    """Return an array of one value throughout; None gives nulls."""
    if value is None:
        return pa.nulls(count, kind)
    return pa.repeat(pa.scalar(value, kind), count)


def dates(us: Numbers, valid: Numbers | None = None) -> Array:
    """Return the UTC dates of instants. All of one day, nearly always, are told by two of them."""
    first, last = (int(us.min()), int(us.max())) if len(us) else (0, 0)
    if valid is None and first // US_PER_DAY == last // US_PER_DAY:
        return pa.repeat(pa.scalar(first // US_PER_DAY, pa.int32()), len(us)).cast(pa.date32())
    return plain((us // US_PER_DAY).astype(np.int32), pa.date32(), valid)


def hexadecimal(cells: Numbers, valid: Numbers | None = None) -> Array:
    """Return rows of bytes, shape (count, width), as text of two digits per byte."""
    count, width = cells.shape
    digits = _HEX[cells]  # two characters per item
    offsets = np.arange(0, (count + 1) * width * 2, width * 2, dtype=np.int32)
    buffers = [None if valid is None else bitmap(valid), pa.py_buffer(offsets)]
    return pa.Array.from_buffers(pa.string(), count, [*buffers, pa.py_buffer(digits)])
