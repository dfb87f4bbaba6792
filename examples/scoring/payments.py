"""Write the payments of a day as a table in Parquet: python payments.py FOLDER"""

# pyarrow has no annotations, so type checkers know little of what it returns.
# pyright: basic

from __future__ import annotations

import sys
from decimal import Decimal
from pathlib import Path

import pyarrow as pa  # type: ignore[import-untyped]
import pyarrow.parquet as pq  # type: ignore[import-untyped]

COUNT = 2_000


def payments() -> pa.Table:
    """Return the table. One payment is from a country without data, one has an invalid hour."""
    countries = [("CH", "FR", "BR")[n % 3] for n in range(COUNT)]
    hours = [n % 24 for n in range(COUNT)]
    countries[7], hours[8] = "XX", 24
    table = {
        "payment_id": list(range(COUNT)),
        "amount": [Decimal(n * 37 % 150_000) / 100 for n in range(COUNT)],
        "country": countries,
        "hour": hours,
        "tags": [["first"] if n % 50 == 0 else [] for n in range(COUNT)],
    }
    schema = pa.schema(
        {
            "payment_id": pa.int64(),
            "amount": pa.decimal128(12, 2),
            "country": pa.string(),
            "hour": pa.int32(),
            "tags": pa.list_(pa.string()),
        }
    )
    return pa.table(table, schema)


if __name__ == "__main__":
    folder = Path(sys.argv[1])
    folder.mkdir(parents=True, exist_ok=True)
    pq.write_table(payments(), folder / "part-0.parquet")
    print(f"{COUNT:,} payments in {folder}")
