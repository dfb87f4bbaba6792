"""The parts of bulk calls, without Spark: ids, shares of the in-flight limit, rows."""

from __future__ import annotations

from typing import Any
from uuid import UUID, uuid5

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.spark.bulk.planned import JOB, plan

from requite.errors import ConfigurationError
from requite.spark.bulk.ids import id_text, job_id, position_names, repetitions, request_ids
from requite.spark.bulk.plan import share
from requite.spark.bulk.pump import Outcome
from requite.spark.bulk.rows import Batch


# --- ids ------------------------------------------------------------------------------------------
@given(st.uuids(), st.lists(st.text()))
def test_ids_are_uuids_of_version_5(job: UUID, names: list[str]) -> None:
    ids = request_ids(job, [name.encode() for name in names])
    expected = [uuid5(job, name) for name in names]
    assert ids == [one.bytes for one in expected]
    assert list(map(id_text, ids)) == list(map(str, expected))


def test_a_row_without_a_name_has_no_id() -> None:
    assert request_ids(JOB, [None, b""]) == [b"", uuid5(JOB, "").bytes]


def test_position_names_are_unique() -> None:
    names = [
        name
        for scope in ("", "1")
        for partition in (0, 1, 10)
        for first_row in (0, 5)
        for name in position_names(scope, partition, first_row, 5)
    ]
    assert len(set(names)) == 60


@given(st.lists(st.sampled_from([b"", b"a", b"b", b"c"])))
def test_repetitions_refer_to_the_first_row(ids: list[bytes]) -> None:
    found = repetitions(ids)
    for row, one in enumerate(ids):
        first = ids.index(one)
        assert found.get(row, row) == (first if one else row)


def test_job_ids() -> None:
    assert job_id("a") == job_id("a") != job_id("b")
    assert job_id(JOB) == JOB
    assert job_id(None) != job_id(None)


# --- the in-flight limit --------------------------------------------------------------------------
@given(st.integers(1, 500), st.integers(1, 64), st.integers(1, 1000))
def test_shares_never_exceed_the_limit(cap: int, slots: int, window: int) -> None:
    if cap < slots:
        with pytest.raises(ConfigurationError, match="less than one request"):
            share(cap, slots, window)
        return
    each = share(cap, slots, window)
    assert 1 <= each <= window
    assert each * slots <= cap
    assert share(None, slots, window) == window


# --- rows -----------------------------------------------------------------------------------------
def answered(batch: Batch) -> list[dict[str, Any]]:
    """Answer every request with its own body, and return the rows."""
    rows = []
    for start, stop, window in batch.windows():
        for row in window.rows:
            body = bytes(window.bodies[row])
            window.outcomes[row] = Outcome(body, "OK", 1, 0.25, True, None)
        for part in batch.finished(start, stop):
            rows += part.to_pylist()
    return rows


keys = st.one_of(st.none(), st.integers(0, 5))
bodies = st.one_of(st.none(), st.sampled_from([b"a", b"b"]))


@given(st.lists(st.tuples(keys, bodies)), st.integers(1, 5))
def test_rows_keep_their_order(rows: list[tuple[Any, Any]], window: int) -> None:
    schema = pa.schema([("key", pa.int64()), ("body", pa.binary())])
    table = [dict(zip(schema.names, row, strict=True)) for row in rows]
    arrow = pa.RecordBatch.from_pylist(table, schema)
    out = answered(Batch(arrow, plan(window=window), partition=0, first_row=0))
    assert [(row["key"], row["body"]) for row in out] == rows
    first: dict[int, Any] = {}
    for row in out:
        known = row["key"] is not None and row["body"] is not None
        same = known and first.setdefault(row["key"], row["body"]) == row["body"]
        if row["status"] == "OK":
            assert same
            assert (row["reply"], row["elapsed_ms"]) == (row["body"], 250.0)
        else:
            assert (row["status"], row["reply"]) == ("BadRow", None)
            assert row["error"]
            assert not row["may_have_executed"]


@pytest.mark.parametrize("kind", [pa.string(), pa.large_string(), pa.binary(), pa.large_binary()])
def test_bodies_of_any_width(kind: pa.DataType) -> None:
    arrow = pa.record_batch({"key": pa.array(["x"]), "body": pa.array(["é"]).cast(kind)})
    assert [row["reply"] for row in answered(Batch(arrow, plan(), 0, 0))] == ["é".encode()]


def test_columns_added_for_the_call_are_left_out() -> None:
    arrow = pa.record_batch({"kept": [1], "key": ["x"], "body": ["y"]})
    [row] = answered(Batch(arrow, plan(key=1, body=2, kept=1, prefix="rq_"), 0, 0))
    assert list(row)[:2] == ["kept", "rq_reply"]
    assert "body" not in row
