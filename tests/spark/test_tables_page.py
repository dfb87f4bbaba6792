"""The declarations and comments of tables, and the page that is generated from them."""

from __future__ import annotations

import pickle
from pathlib import Path

import pytest
from tests.spark.tables_page import PAGE, main, render

from requite.spark import schemas
from requite.spark.described_tables import Table


def test_every_table_is_described() -> None:
    declared = {
        name for name, value in vars(schemas).items() if name.isupper() and isinstance(value, str)
    }
    assert declared == {name.upper() for name in schemas.TABLES}
    assert set(schemas.LAKE) < set(schemas.TABLES)


def test_comments_are_printable_sentences() -> None:
    for name, table in schemas.TABLES.items():
        for text in (table.about, *table.comments.values()):
            assert text.endswith("."), (name, text)
            assert text.isprintable(), (name, text)
            assert "  " not in text, (name, text)


def test_every_table_is_on_the_page() -> None:
    for name, table in schemas.TABLES.items():
        assert table.about in render(), name


def test_the_page_is_up_to_date(tmp_path: Path) -> None:
    assert main(tmp_path / "tables.md") == 0
    assert PAGE.read_text(encoding="utf-8") == (tmp_path / "tables.md").read_text("utf-8"), (
        "docs/reference/tables.md is out of date; write it: python -m tests.spark.tables_page"
    )


def test_a_table_is_a_string_of_its_columns_as_ddl() -> None:
    table = Table(
        "One row per day.",
        """
        day date: Which day: in UTC.
        n bigint: How many,
            of all.
        """,
    )
    assert table == "day date, n bigint"
    assert schemas.columns_of(table) == {"day": "date", "n": "bigint"}
    assert table.comments == {"day": "Which day: in UTC.", "n": "How many, of all."}
    longer = table.and_also("One row per hour.", "hour int: Which hour.")
    assert longer == "day date, n bigint, hour int"
    copied = pickle.loads(pickle.dumps(longer))
    assert (copied, copied.about, copied.comments) == (longer, longer.about, longer.comments)


@pytest.mark.parametrize("column", ["day date", "day: Which day.", "day date: "])
def test_a_column_without_a_type_or_a_comment_is_refused(column: str) -> None:
    with pytest.raises(ValueError, match="without a type or a comment: day"):
        Table("One row per day.", f"n int: How many.\n{column}")
