"""SQL queries of a lake: results, and errors of one sentence."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from datetime import UTC, date, datetime
from decimal import Decimal
from pathlib import Path
from typing import NamedTuple

import pytest
from pyspark.sql import SparkSession
from pyspark.sql.classic.dataframe import DataFrame
from tests.spark.tables import append

from requite.cli.app import run as run_command
from requite.cli.spark import sql
from requite.spark import schemas
from requite.spark.delta.catalog import Catalog
from requite.spark.marker import claim
from requite.spark.sql import Answer

MONDAY = date(2026, 3, 2)
NOON = datetime(2026, 3, 2, 12, tzinfo=UTC)


class Outcome(NamedTuple):
    """The exit code and the output of the command."""

    code: int
    out: str
    err: str


Ask = Callable[..., Outcome]


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A lake with three requests, after one run."""
    root = tmp_path_factory.mktemp("sql") / "lake"
    claim(str(root), "/journal")
    catalog = Catalog(str(root))
    requests = [
        {"request_id": f"{number}", "service": "[b]echo", "total_ms": number / 2, "date": MONDAY}
        for number in (1, 2, 3)
    ]
    with catalog.running():
        append(catalog, "silver_requests", requests)
        append(catalog, "bronze_quarantine", [{"log": "broker-1", "raw": b"\x00\xff"}])
        catalog.end({}, accepted=3, began_at=NOON)
    return root


@pytest.fixture
def ask(
    spark: SparkSession,
    whole: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> Ask:
    """Return a function that runs `requite spark sql` in the session of the tests."""
    monkeypatch.setattr("requite.spark.session.local_session", lambda *_args, **_given: spark)

    def run(query: str, *words: str, lake: Path = whole) -> Outcome:
        capsys.readouterr()
        code = run_command(["spark", "sql", query, "--lake", str(lake), *words])
        return Outcome(code, *capsys.readouterr())

    return run


def test_rows_are_printed_as_a_table_and_capped(ask: Ask) -> None:
    query = "-- newest\nselect request_id, service, total_ms from silver_requests ORDER BY 1 DESC; "
    outcome = ask(query, "--rows", "2")
    assert outcome.code == 0, outcome.err
    lines = outcome.out.splitlines()
    assert [line.split() for line in lines if "echo" in line] == [
        ["│", "3", "│", "[b]echo", "│", "1.5", "│"],
        ["│", "2", "│", "[b]echo", "│", "1.0", "│"],
    ]
    assert lines[-1] == "2 rows; the query has more: raise --rows"


def test_only_numbers_are_aligned_to_the_right() -> None:
    rows = [(1.5, Decimal(1), None, True, None, "a"), (None, Decimal(22), 3, False, None, "b")]
    answer = Answer(tuple("abcdef"), rows, more=False)
    table = sql._table(answer, answer.columns, [[str(value) for value in row] for row in rows])
    assert [column.justify[0] for column in table.columns] == ["r", "r", "r", "l", "l", "l"]


def test_rows_too_wide_for_a_table_are_printed_as_lines(ask: Ask) -> None:
    outcome = ask("SELECT * FROM silver_requests ORDER BY request_id", "--rows", "1")
    lines = outcome.out.splitlines()
    assert (lines[0], lines[-1]) == ("row 1", "1 row; the query has more: raise --rows")
    assert dict(line.split() for line in lines[1:-1]) == {
        **dict.fromkeys(schemas.SILVER_REQUESTS.comments, "null"),
        "request_id": "1", "service": "[b]echo", "total_ms": "0.5", "date": "2026-03-02",
    }  # fmt: skip


def test_json_has_an_object_per_row(ask: Ask) -> None:
    query = """
        WITH kept AS (SELECT raw, count(*) OVER () AS n FROM bronze_quarantine)
        SELECT kept.*, began_at, accepted, double('NaN') AS nan, array(DATE'2026-03-02') AS days,
               named_struct('a', 1.50BD) AS price, null AS nothing
        FROM kept, Runs, (SELECT count(*) AS none FROM audit_contradictions) WHERE none = 0
    """
    outcome = ask(query, "--json")
    assert outcome.code == 0, outcome.err
    assert [json.loads(line) for line in outcome.out.splitlines()] == [
        {
            "raw": "00ff", "n": 1, "began_at": "2026-03-02T12:00:00.000000Z", "accepted": 3,
            "nan": "nan", "days": ["2026-03-02"], "price": {"a": "1.50"}, "nothing": None,
        },
        {"rows": 1, "more": False},
    ]  # fmt: skip
    twice = ask("SELECT 1 AS a, 2 AS a", "--json")
    assert (twice.code, twice.out) == (2, "")
    assert "two columns a" in twice.err


def test_describe_shows_the_comments_of_columns(ask: Ask) -> None:
    outcome = ask("DESCRIBE silver_requests", "--json")
    assert outcome.code == 0, outcome.err
    columns = {row.get("col_name"): row for row in map(json.loads, outcome.out.splitlines())}
    assert columns["request_id"]["comment"] == "The request."


@pytest.mark.parametrize(
    ("query", "message"),
    [
        ("DROP TABLE silver_requests", "read-only"),
        ("  /* SELECT */ INSERT INTO runs SELECT 1", "read-only"),
        ("", "read-only"),
        ("WITH a AS (SELECT 1) INSERT INTO runs SELECT * FROM a", "cannot be run: Syntax error"),
        ("SELECT 1; DROP TABLE runs", "cannot be run: Syntax error"),
        ("SELECT FORM runs WHERE", "cannot be run: "),
        ("SELECT accepted_by FROM runs", "`accepted_by` cannot be resolved"),
        (
            "SELECT * FROM requests",
            "there is no table `requests`; the tables of a lake are bronze_events, ",
        ),
        ("SELECT * FROM parquet.`/etc`", "no table `parquet`.`/etc`; "),
        ("SELECT 1 / (accepted - 3) FROM runs", "Division by zero"),
        ("SELECT CAST('echo' AS int)", "cannot be cast"),
    ],
)
def test_an_invalid_query_is_an_error_of_one_sentence(ask: Ask, query: str, message: str) -> None:
    ended = ask(query)
    assert (ended.code, ended.out) == (2, "")
    (line,) = [line for line in ended.err.splitlines() if line.strip()]
    assert message in line


def test_a_missing_lake_is_an_error(ask: Ask, tmp_path: Path) -> None:
    ended = ask("SELECT 1", lake=tmp_path / "none")
    assert (ended.code, ended.out) == (2, "")
    assert f"there is no lake at {tmp_path}/none: " in ended.err
    assert not list(tmp_path.iterdir())


def test_a_damaged_table_is_named_and_others_are_read(
    ask: Ask, whole: Path, tmp_path: Path
) -> None:
    lake = tmp_path / "lake"
    shutil.copytree(whole, lake)
    (file,) = lake.glob("silver_requests/*/*.parquet")
    file.unlink()
    ended = ask("SELECT * FROM silver_requests", lake=lake)
    assert (ended.code, ended.out) == (1, "")
    assert f"{file.relative_to(lake)} is missing; " in ended.err
    assert len(ended.err.strip().splitlines()) == 1
    assert ask("SELECT * FROM bronze_quarantine", lake=lake).code == 0


def test_a_lost_connection_to_spark_is_an_error_of_one_sentence(
    ask: Ask, spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_args: object) -> None:
        raise ConnectionRefusedError(111, "Connection refused")

    for owner, name in ((type(spark), "newSession"), (DataFrame, "toArrow")):
        with monkeypatch.context() as patched:
            patched.setattr(owner, name, refuse)
            ended = ask("SELECT 1")
        assert (ended.code, ended.out) == (1, "")
        assert "the connection to Spark was lost" in ended.err
        assert len(ended.err.strip().splitlines()) == 1


def test_a_query_leaves_no_views_or_settings(ask: Ask, spark: SparkSession) -> None:
    before = spark.conf.get("spark.sql.runSQLOnFiles")
    assert ask("SELECT * FROM runs").code == 0
    assert not spark.catalog.tableExists("runs")
    assert spark.conf.get("spark.sql.runSQLOnFiles") == before
