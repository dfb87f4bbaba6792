"""Questions to a lake in SQL. Only queries, and only of its tables."""

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
_SENTENCE_MAX: Final = 400  # characters of what Spark says


class Answer(NamedTuple):
    """The first rows of a result; `more` tells that it has more of them."""

    columns: tuple[str, ...]
    rows: list[tuple[Any, ...]]
    more: bool


def require_lake(root: str | PathLike[str]) -> str:
    """Return the place of a lake. Raises `ConfigurationError` where no run has made one."""
    place = place_of(root, "a lake is kept in")
    if not is_lake(place):
        raise ConfigurationError(
            f"there is no lake at {place}: `requite spark run --journal DIR --lake {place}` makes "
            "one"
        )
    return place


def require_query(text: str) -> None:
    """Raise `ConfigurationError` for what does not begin as a query does."""
    if _first_word(text) not in (*_QUERIES, *_DESCRIPTIONS):
        raise ConfigurationError(
            "a lake is only read here: give a query, which begins with SELECT, WITH or DESCRIBE"
        )


def ask(spark: SparkSession, root: str | PathLike[str], text: str, rows_max: int) -> Answer:
    """Run a query over the tables of a lake, as its last run has left them.

    Raises `ConfigurationError` where there is no lake, for what is not a query, and for one that
    Spark cannot run; `LakeDamaged` if a table that it names is not what was written.
    """
    place = require_lake(root)
    require_query(text)
    with as_sentences():
        # A session of its own: neither its views nor its settings are anybody else's.
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
    """Return the tables that a query names. Files of all others need not be looked at."""
    words = set(re.findall(r"\w+", text.lower()))
    return [name for name in schemas.LAKE if name in words]


def _rows(lake: Lake, name: str) -> DataFrame:
    if name != RUNS:
        return lake.table(name)
    runs = Table.open(lake.root, RUNS)  # whose files the catalog has looked at
    return lake.rows(RUNS, list(runs.files.values()) if runs else [])


def _query(session: SparkSession, text: str) -> DataFrame:
    if _first_word(text) in _DESCRIPTIONS:
        return session.sql(text)
    # Nothing but a query can stand in parentheses, whatever its first word is.
    query = text.strip().rstrip("; \n")
    return session.sql(f"SELECT * FROM (\n{query}\n)")


@contextmanager
def _explained() -> Iterator[None]:
    """Raise what Spark says about a query as one sentence."""
    try:
        with as_sentences():
            yield
    except PySparkException as error:
        raise ConfigurationError(_words(error)) from error


def _words(error: PySparkException) -> str:
    if error.getCondition() == _UNKNOWN_TABLE:
        name = (error.getMessageParameters() or {}).get("relationName", "of that name")
        return f"there is no table {name}; a lake has {', '.join(schemas.LAKE)}"
    text = re.split(r"SQLSTATE|\n\n|== SQL", str(error))[0]
    text = re.sub(r"^\s*\[[\w.]+\]\s*", "", text)
    return f"the query cannot be run: {' '.join(text.split())[:_SENTENCE_MAX]}"
