"""The table of broken engines says of each engine what finds it, and forgets none."""

from __future__ import annotations

from collections import Counter

from tests.sim.broken import BROKEN, render
from tests.sim.finding import TABLE, Row, table


def test_no_broken_engine_is_lost() -> None:
    known = {broken.key: broken.scenario for broken in BROKEN}
    assert {key: row.scenario for key, row in table().items()} == known, (
        "measure what is new: python -m tests.sim.broken NAME; remove rows by hand"
    )


def test_each_has_a_name_of_its_own() -> None:
    assert not [key for key, times in Counter(b.key for b in BROKEN).items() if times > 1]


def test_the_table_is_written_as_it_is_read() -> None:
    assert TABLE.read_text("utf-8") == render(table())


def test_what_is_found_often_must_be_found_soon() -> None:
    often, seldom = Row("calm", 1, 20), Row("calm", 3, 1)
    assert (often.seeds_max, seldom.seeds_max) == (3, 97)
    assert list(often.seeds()) == [1, 1, 2]
    assert list(seldom.seeds())[:3] == [3, 1, 2]
