"""`requite spark sql`: query the tables of a lake."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from datetime import date, datetime
from decimal import Decimal
from math import isfinite
from typing import TYPE_CHECKING, Annotated, Any, Final

from cyclopts import Parameter, validators

from requite.cli.exit_codes import ExitCode
from requite.cli.options import OUTPUT, JsonFlag, LakePlace
from requite.cli.output import counted, printable, say, say_json, stderr_console, stdout_console
from requite.cli.spark.options import USUAL, SparkOptions
from requite.errors import ConfigurationError

if TYPE_CHECKING:
    from rich.table import Table

    from requite.spark.sql import Answer

_ROWS_DEFAULT: Final = 100
_WIDEST: Final = 1 << 20  # characters; to measure the natural width of a table
_QUIET: Final = {"spark.log.level": "OFF"}  # the command prints a failed query as one sentence


def sql(
    query: Annotated[
        str,
        Parameter(
            allow_leading_hyphen=True,  # of a comment
            help="A query in Spark SQL: `SELECT …` or `DESCRIBE TABLE`.",
        ),
    ],
    /,
    *,
    lake: LakePlace,
    rows: Annotated[
        int,
        Parameter(
            metavar="N",
            group=OUTPUT,
            validator=validators.Number(gt=0),
            help="Print at most N rows.",
        ),
    ] = _ROWS_DEFAULT,
    spark: SparkOptions = USUAL,
    as_json: JsonFlag = False,
) -> int:
    """Query the tables of a lake in SQL.

    The tables are those of `requite spark run`, as of its last run. `DESCRIBE
    silver_requests` describes the columns of a table. Queries are read-only.

    With --json each row is an object on its own line. The last line is an object:
    rows (the number printed), more (whether the query has more rows).

      $ requite spark sql "SELECT service, n FROM gold_failures" --lake lake
    """
    from requite.spark.session import ONCE
    from requite.spark.sql import ask, require_lake, require_query  # loads Spark

    require_lake(lake)
    require_query(query)
    with (
        stderr_console().status("running the query"),
        spark.session("requite spark sql", {**ONCE, **_QUIET}) as session,
    ):
        answer = ask(session, lake, query, rows)
    if as_json:
        _say_rows(answer)
    else:
        _show(answer)
    return ExitCode.OK


def _show(answer: Answer) -> None:
    """Print a table, or one line per cell if the table is wider than the terminal."""
    names = [printable(name) for name in answer.columns]
    rows = [[printable(_text(value)) for value in row] for row in answer.rows]
    console, table = stdout_console(), _table(answer, names, rows)
    if (
        console.measure(table, options=console.options.update_width(_WIDEST)).maximum
        > console.width
    ):
        _show_lines(names, rows)
    else:
        console.print(table)
    shown = counted(len(rows), "row")
    say(f"{shown}; the query has more: raise --rows" if answer.more else shown)


def _table(answer: Answer, names: Sequence[str], rows: Sequence[Sequence[str]]) -> Table:
    from rich.table import Table
    from rich.text import Text

    table = Table()
    for number, name in enumerate(names):
        are_numbers = _are_numbers([row[number] for row in answer.rows])
        table.add_column(Text(name), justify="right" if are_numbers else "left")
    for row in rows:
        table.add_row(*map(Text, row))
    return table


def _are_numbers(column: Sequence[Any]) -> bool:
    """Whether a column has only numbers and nulls, and at least one number."""
    there = [value for value in column if value is not None]
    return bool(there) and all(
        isinstance(value, int | float | Decimal) and not isinstance(value, bool) for value in there
    )


def _show_lines(names: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    width = max(map(len, names))
    for number, row in enumerate(rows, 1):
        say(f"row {number}")
        for name, cell in zip(names, row, strict=True):
            say(f"  {name:<{width}}  {cell}")


def _text(value: Any) -> str:
    if value is None:
        return "null"
    if isinstance(value, datetime):
        return f"{value:%Y-%m-%d %H:%M:%S.%f}"
    plain = _plain(value)
    return plain if isinstance(plain, str) else json.dumps(plain, ensure_ascii=False)


def _say_rows(answer: Answer) -> None:
    if twice := [name for name in answer.columns if answer.columns.count(name) > 1]:
        raise ConfigurationError(
            f"the result has two columns {twice[0]}, which JSON cannot represent: rename one with "
            "AS"
        )
    for row in answer.rows:
        say_json({name: _plain(cell) for name, cell in zip(answer.columns, row, strict=True)})
    say_json({"rows": len(answer.rows), "more": answer.more})


def _plain(value: Any) -> Any:
    """Return a value for JSON: times in ISO 8601, bytes in hexadecimal, other types as text."""
    match value:
        case None | bool() | int() | str():
            return value
        case float():
            return value if isfinite(value) else str(value)
        case datetime():
            return f"{value:%Y-%m-%dT%H:%M:%S.%fZ}"
        case date():
            return value.isoformat()
        case bytes():
            return value.hex()
        case Mapping():
            return {str(name): _plain(item) for name, item in value.items()}
        case list() | tuple():
            return [_plain(item) for item in value]
        case _:
            return str(value)
