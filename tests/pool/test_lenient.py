"""Whatever others put into messages is read."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pamqp import decode, encode

from requite.pool.manager.lenient import read_anything


@pytest.fixture(autouse=True, scope="module")
def _lenient() -> Iterator[None]:
    strict = dict(decode.METHODS)
    read_anything()
    read_anything()
    yield
    decode.METHODS.update(strict)


@given(st.binary(max_size=255), st.binary(max_size=4))
def test_short_strings_may_hold_any_bytes(text: bytes, rest: bytes) -> None:
    read = decode.by_type(bytes([len(text)]) + text + rest, "shortstr")
    assert read == (1 + len(text), text.decode(errors="replace"))


@given(st.binary(max_size=60), st.binary(max_size=4))
def test_tables_may_hold_any_bytes(content: bytes, rest: bytes) -> None:
    consumed, table = decode.by_type(len(content).to_bytes(4, "big") + content + rest, "table")
    assert consumed == 4 + len(content)
    assert isinstance(table, dict)


@given(st.dictionaries(st.text(max_size=9), st.one_of(st.text(max_size=9), st.booleans())))
def test_tables_that_are_well_formed_are_read_as_ever(table: dict[str, str | bool]) -> None:
    written = encode.field_table(table)
    assert decode.by_type(written, "table") == decode.field_table(written)
