"""`requite_call`: bulk calls as a table function of SQL.

    SELECT order_id, reply.price, status, error
    FROM requite_call(
        TABLE(SELECT order_id, struct(sku, count) AS body FROM orders),
        url => 'mdp://broker:5555/orders.price',
        body => 'body',
        key => 'order_id',
        returns => CAST(NULL AS STRUCT<price: DECIMAL(10, 2), note: STRING>)
    )

The other arguments are the options of the sink (`requite.spark.sink`) without `repliesTo` and
`onError`; they are constants. `returns` is any expression: its type is that of the replies.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Final

import pyarrow as pa
from pyspark.sql.conversion import ArrowTableToRowsConversion, LocalDataToArrowConversion
from pyspark.sql.types import DataType, NullType, Row, StructType
from pyspark.sql.udtf import AnalyzeArgument, AnalyzeResult

from requite.errors import ConfigurationError
from requite.spark.bulk.plan import Plan
from requite.spark.bulk.schema import schema_of
from requite.spark.bulk.task import call_batches
from requite.spark.sink.options import Options, read_plan

NAME: Final = "requite_call"
_ROWS_MAX: Final = 10_000  # as many as an Arrow batch of a bulk call has


@dataclass
class Call(AnalyzeResult):
    """What the driver tells the tasks: the plan, and the schema of their rows."""

    plan: Plan | None = None
    rows: StructType | None = None


class RequiteCall:
    """The table function. One object gets the rows of one partition, in a task."""

    def __init__(self, call: Call) -> None:
        assert call.plan is not None
        assert call.rows is not None
        self._plan: Plan = call.plan
        self._schema: StructType = call.rows
        self._answers: StructType = call.schema
        self._rows: list[Row] = []

    @staticmethod
    def analyze(table: AnalyzeArgument, **arguments: AnalyzeArgument) -> Call:
        """Check the arguments, and the types against the description; return the schema.

        Raises `ConfigurationError`, `RemoteViolation` and `CallError` before any row is sent.
        """
        if not table.isTable or not isinstance(table.dataType, StructType):
            raise ConfigurationError(f"the first argument of {NAME} is a table: TABLE(orders)")
        named = {name.lower(): argument for name, argument in arguments.items()}
        returns = _type_of(named.pop("returns", None))
        options = Options({name: _text(name, each) for name, each in named.items()}, NAME)
        plan = read_plan(options, table.dataType, returns)
        options.end()
        if plan.key is None:
            raise ConfigurationError(f"{NAME} requires a key: its rows have no stable positions")
        return Call(schema_of(table.dataType, plan), plan=plan, rows=table.dataType)

    def eval(self, table: Row, **_: Any) -> Iterator[tuple[Any, ...]]:
        """Take a row; yield the rows of a full batch with their replies."""
        self._rows.append(table)
        if len(self._rows) == _ROWS_MAX:
            yield from self._answered()

    def terminate(self) -> Iterator[tuple[Any, ...]]:
        """Yield the rows of the last batch."""
        if self._rows:
            yield from self._answered()

    def _answered(self) -> Iterator[tuple[Any, ...]]:
        rows, self._rows = self._rows, []
        table = LocalDataToArrowConversion.convert(rows, self._schema, False)
        for batch in call_batches(table.to_batches(), self._plan):
            if batch.num_rows:
                answered = pa.Table.from_batches([batch])
                yield from map(tuple, ArrowTableToRowsConversion.convert(answered, self._answers))


def _type_of(argument: AnalyzeArgument | None) -> DataType | None:
    if argument is None or isinstance(argument.dataType, NullType):
        return None
    return argument.dataType


def _text(name: str, argument: AnalyzeArgument) -> str:
    if not argument.isConstantExpression:
        raise ConfigurationError(f"the argument {name} of {NAME} must be a constant")
    return "" if argument.value is None else str(argument.value)
