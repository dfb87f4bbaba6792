"""The columns of the result of a bulk call."""

from __future__ import annotations

from typing import Final

from pyspark.sql.types import (
    BinaryType,
    BooleanType,
    DataType,
    DoubleType,
    IntegerType,
    StringType,
    StructField,
    StructType,
)

from requite.spark.bulk.plan import Plan

_TYPES: Final[dict[str, DataType]] = {
    "binary": BinaryType(),
    "string": StringType(),
    "int": IntegerType(),
    "double": DoubleType(),
    "boolean": BooleanType(),
}


def schema_of(kept: StructType, plan: Plan) -> StructType:
    """Return the columns of the input, and those that are added."""
    types = list(map(_TYPES.__getitem__, plan.columns.values()))
    if plan.contract is not None:
        types[0] = plan.contract.reply
    return StructType([*kept.fields, *map(StructField, plan.names, types)])
