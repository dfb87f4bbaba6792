"""SQL queries of a lake's tables, read-only."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from os import PathLike
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from pyspark.errors import PySparkException

from requite.errors import ConfigurationError
from requite.spark import schemas
from requite.spark.delta.catalog import RUNS
from requite.spark.delta.table import Table
from requite.spark.failures import as_sentences
from requite.spark.lake import Lake
from requite.spark.marker import is_lake
from requite.storage.place import place_of

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

_COMMENT: Final = re.compile(r"/\*.*?\*/|--[^\n]*", re.DOTALL)
_FIRST_WORD: Final = re.compile(r"[\s(]*(\w*)")
_QUERIES: Final = ("SELECT", "WITH", "VALUES", "TABLE", "FROM")
_DESCRIPTIONS: Final = ("DESCRIBE", "DESC")
_UNKNOWN_TABLE: Final = "TABLE_OR_VIEW_NOT_FOUND"
_SENTENCE_MAX: Final = 400  # characters of Spark's message


class Answer(NamedTuple):
    """The first rows of a result; `more`: whether it has further rows."""

    columns: tuple[str, ...]
    rows: list[tuple[Any, ...]]
    more: bool


def require_lake(root: str | PathLike[str]) -> str:
    """Return the place of a lake. Raises `ConfigurationError` if there is no lake."""
    place = place_of(root, "a lake is stored in")
    if not is_lake(place):
        raise ConfigurationError(
            f"there is no lake at {place}: create it with `requite spark run --journal DIR"
            f" --lake {place}`"
        )
    return place


def require_query(text: str) -> None:
    """Raise `ConfigurationError` unless the text begins like a query."""
    if _first_word(text) not in (*_QUERIES, *_DESCRIPTIONS):
        raise ConfigurationError(
            "a lake is read-only: pass a query that begins with SELECT, WITH or DESCRIBE"
        )


def ask(spark: SparkSession, root: str | PathLike[str], text: str, rows_max: int) -> Answer:
    """Run a query over the tables of a lake, as of its last run.

    Raises `ConfigurationError` if there is no lake, or if the text is not a query that Spark can
    run; `LakeDamaged` if a table that it names has changed since it was written.
    """
    place = require_lake(root)
    require_query(text)
    with as_sentences():
        # A new session, which shares neither views nor settings with others.
        session = spark.newSession()
        session.conf.set("spark.sql.runSQLOnFiles", "false")
        lake = Lake.at(session, place)
        for name in _named(text):
            _rows(lake, name).createOrReplaceTempView(name)
    with _explained():
        found = _query(session, text).limit(rows_max + 1).toArrow()
    columns = [column.to_pylist() for column in found.columns]
    rows = list(zip(*columns, strict=True))
    return Answer(tuple(found.column_names), rows[:rows_max], len(rows) > rows_max)


def _first_word(text: str) -> str:
    found = _FIRST_WORD.match(_COMMENT.sub(" ", text))
    return found[1].upper() if found else ""


def _named(text: str) -> Iterable[str]:
    """Return the tables that a query names; the files of others are not checked."""
    words = set(re.findall(r"\w+", text.lower()))
    return [name for name in schemas.LAKE if name in words]


def _rows(lake: Lake, name: str) -> DataFrame:
    if name != RUNS:
        return lake.table(name)
    runs = Table.open(lake.root, RUNS)  # the catalog has checked its files
    return lake.rows(RUNS, list(runs.files.values()) if runs else [])


def _query(session: SparkSession, text: str) -> DataFrame:
    if _first_word(text) in _DESCRIPTIONS:
        return session.sql(text)
    # Only a query can be in parentheses, regardless of its first word.
    query = text.strip().rstrip("; \n")
    return session.sql(f"SELECT * FROM (\n{query}\n)")


@contextmanager
def _explained() -> Iterator[None]:
    """Convert Spark's errors on a query to one sentence."""
    try:
        with as_sentences():
            yield
    except PySparkException as error:
        raise ConfigurationError(_words(error)) from error


def _words(error: PySparkException) -> str:
    if error.getCondition() == _UNKNOWN_TABLE:
        name = (error.getMessageParameters() or {}).get("relationName", "of that name")
        return f"there is no table {name}; the tables of a lake are {', '.join(schemas.LAKE)}"
    text = re.split(r"SQLSTATE|\n\n|== SQL", str(error))[0]
    text = re.sub(r"^\s*\[[\w.]+\]\s*", "", text)
    return f"the query cannot be run: {' '.join(text.split())[:_SENTENCE_MAX]}"
