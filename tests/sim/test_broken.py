"""Every checker of the simulator finds the engines that break its rule, and no others.

`mutant_table.py` lists these engines. The same seeds and knobs find nothing in intact engines.
"""

from __future__ import annotations

from collections import Counter
from typing import Any, Final

import pytest
from tests.sim.broken import render
from tests.sim.finding import TABLE, Broken, Row, assert_found, assert_intact, cases, table
from tests.sim.mutant_table import (
    BROKEN,
    COUNTED_LATE,
    EXPIRING,
    HELD,
    LEAVING,
    POISON,
    REPEATED,
)
from tests.support.builds import pure_only

from requite.sim.amqp.simulation import AmqpSimulation
from requite.sim.freelance.simulation import FreelanceSimulation
from requite.sim.majordomo.checkers import CHECKERS
from requite.sim.pirate.checkers import PIRATE_CHECKERS
from requite.sim.scalability.checkers import SP_CHECKERS
from requite.sim.scenarios import GROUPS
from requite.sim.shells.simulation import SHELL_CHECKERS

pytestmark = pure_only("broken engines inherit from engines")

_GROUPS: Final = [group for group in GROUPS if group != "all"]


@cases(BROKEN)
def test_a_broken_engine_is_found(broken: Broken) -> None:
    assert_found(broken)


@pytest.mark.parametrize(
    ("group", "knobs", "seeds"),
    [
        *[(group, {}, (1,)) for group in _GROUPS if group not in ("dedup", "pair", "pool")],
        ("dedup", REPEATED, (1,)),
        ("pair", {}, (1, 2, 3)),
        ("pool", {}, (1,)),
        *[("pool", knobs, (1,)) for knobs in (POISON, EXPIRING, HELD, COUNTED_LATE, LEAVING)],
    ],
)
def test_intact_engines_violate_nothing(
    group: str, knobs: dict[str, Any], seeds: tuple[int, ...]
) -> None:
    assert_intact({each.scenario for each in BROKEN if each.group == group}, seeds, knobs)


@pytest.mark.parametrize(
    ("group", "invariants"),
    [
        ("mdp", {checker.invariant for checker in CHECKERS} | {"I9", "I10"}),
        ("dedup", {"I2", "I4", "I9"}),
        ("sp", {checker.invariant for checker in SP_CHECKERS} | {"I9", "I10"}),
        ("flp", {checker.invariant for checker in FreelanceSimulation.checkers} | {"I9", "I10"}),
        (  # I5 checks all protocols, but the Pirates have no partial replies
            "pirate",
            {checker.invariant for checker in PIRATE_CHECKERS} - {"I5"}
            | {"I6", "I9", "I10", "idle"},
        ),
        (
            "titanic",
            {"I2", "I3", "I7", "I9", "I10", "I13", "I15", "I16"}
            | {"keys", "window", "polite", "disk", "damage"},
        ),
        ("pair", {"I10", "I12", "I13", "fatal"}),
        ("pair-broker", {"I10", "I11", "I12", "may_have_executed"}),
        ("rights", {"I16", "I17", "I18", "I19"}),
        ("pool", {"I2", "I7", "I9", "I10", "I13", "I14", "I15"}),
        ("amqp", {checker.invariant for checker in AmqpSimulation.checkers} | {"I10"}),
        ("shells", {checker.invariant for checker in SHELL_CHECKERS} | {"I3", "I9", "I10"}),
    ],
)
def test_every_checker_has_a_broken_engine(group: str, invariants: set[str]) -> None:
    assert {each.invariant for each in BROKEN if each.group == group} == invariants


def test_every_broken_engine_has_a_row() -> None:
    known = {broken.key: broken.scenario for broken in BROKEN}
    assert {key: row.scenario for key, row in table().items()} == known, (
        "measure new engines: python -m tests.sim.broken NAME; remove rows by hand"
    )


def test_names_of_broken_engines_are_unique() -> None:
    assert not [key for key, times in Counter(b.key for b in BROKEN).items() if times > 1]


def test_written_rows_read_back_equal() -> None:
    assert TABLE.read_text("utf-8") == render(table())


def test_few_seeds_must_find_an_engine_that_is_found_often() -> None:
    often, seldom = Row("calm", 1, 20), Row("calm", 3, 1)
    assert (often.seeds_max, seldom.seeds_max) == (3, 97)
    assert list(often.seeds()) == [1, 1, 2]
    assert list(seldom.seeds())[:3] == [3, 1, 2]
