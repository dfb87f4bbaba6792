"""Random damage to a lake: files deleted, truncated, copied, swapped, or with a flipped bit.

Readers and later runs then get the same rows, or an error that names the damage; never other rows.
"""

from __future__ import annotations

import random
import shutil
from collections.abc import Callable
from datetime import date
from pathlib import Path
from typing import Any
from unittest import mock

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.spark.tables import append, replace, rows_of

from requite.errors import LakeDamaged
from requite.spark.delta import process
from requite.spark.delta.catalog import Catalog

MONDAY, TUESDAY = date(2026, 3, 2), date(2026, 3, 3)
EVENTS = "bronze_events"
TABLES = (EVENTS, "silver_heartbeats", "audit_verdicts")
RUNS = 9  # more than there are between two checkpoints of the log of runs


def play(root: Path, runs: range) -> None:
    """Execute runs, each of which writes all tables."""
    for number in runs:
        day = (MONDAY, TUESDAY)[number % 2]
        catalog = Catalog(str(root))
        with catalog.running():
            append(catalog, EVENTS, [{"seq": number, "date": day}])
            replace(catalog, "silver_heartbeats", [{"worker": str(number), "date": day}], [day])
            replace(catalog, "audit_verdicts", [{"request_id": str(number), "date": day}], [day])
            catalog.end({"told": number})
            catalog.merge()


def contents(catalog: Catalog) -> dict[str, Any]:
    """Return the rows and the state of a lake."""
    rows = {name: sorted(map(repr, rows_of(catalog, name))) for name in TABLES}
    return {**rows, "state": catalog.last.state}


@pytest.fixture(scope="module")
def lakes(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path, dict[str, Any]]:
    """A lake, a path for damaged copies of it, and its contents."""
    folder = tmp_path_factory.mktemp("damage")
    # The runs count as ended, even if a log loses the commit that records it.
    with mock.patch.object(process, "_started", return_value="long ago"):
        play(folder / "lake", range(RUNS))
    return folder / "lake", folder / "copy", contents(Catalog(str(folder / "lake")))


def damage(root: Path, how: str, luck: random.Random) -> None:
    """Damage a random file of a lake, usually one that is still needed."""
    files = sorted(path for path in root.rglob("*") if path.is_file())
    newest = sorted(files, key=lambda path: path.stat().st_mtime_ns)[-20:]
    logs = [path for path in files if "_delta_log" in path.parts]
    victim = luck.choice(luck.choice([files, newest, logs]))
    DAMAGES[how](victim, luck.choice(files), luck)


def delete(victim: Path, other: Path, luck: random.Random) -> None:
    victim.unlink()


def delete_the_end_of_a_log(victim: Path, other: Path, luck: random.Random) -> None:
    for commit in commits_beside(victim)[-luck.randint(1, 6) :]:
        commit.unlink()


def delete_the_folder(victim: Path, other: Path, luck: random.Random) -> None:
    shutil.rmtree(victim.parent)


def delete_the_table(victim: Path, other: Path, luck: random.Random) -> None:
    shutil.rmtree(commits_beside(victim)[0].parents[1])


def cut(victim: Path, other: Path, luck: random.Random) -> None:
    victim.write_bytes(victim.read_bytes()[: luck.randrange(victim.stat().st_size)])


def cut_at_a_line(victim: Path, other: Path, luck: random.Random) -> None:
    lines = victim.read_bytes().splitlines(keepends=True)
    victim.write_bytes(b"".join(lines[: luck.randrange(len(lines))]))


def flip(victim: Path, other: Path, luck: random.Random) -> None:
    content = bytearray(victim.read_bytes())
    content[luck.randrange(len(content))] ^= 1 << luck.randrange(8)
    victim.write_bytes(content)


def overwrite(victim: Path, other: Path, luck: random.Random) -> None:
    victim.write_bytes(other.read_bytes())


def swap(victim: Path, other: Path, luck: random.Random) -> None:
    ours, theirs = victim.read_bytes(), other.read_bytes()
    victim.write_bytes(theirs)
    other.write_bytes(ours)


def swap_commits(victim: Path, other: Path, luck: random.Random) -> None:
    swap(luck.choice(commits_beside(victim)), luck.choice(commits_beside(other)), luck)


def double(victim: Path, other: Path, luck: random.Random) -> None:
    shutil.copyfile(victim, victim.with_name(f"copy-of-{victim.name}"))


def double_a_commit(victim: Path, other: Path, luck: random.Random) -> None:
    commits = commits_beside(victim)
    following = commits[-1].with_name(f"{int(commits[-1].stem) + 1:020}.json")
    shutil.copyfile(luck.choice(commits[-3:]), following)


def commits_beside(path: Path) -> list[Path]:
    """Return the commits of the table that a file belongs to, in order."""
    log = next(place / "_delta_log" for place in path.parents if (place / "_delta_log").is_dir())
    return sorted(log.glob("*.json"))


DAMAGES: dict[str, Callable[[Path, Path, random.Random], None]] = {
    act.__name__: act
    for act in (
        *(delete, delete_the_end_of_a_log, delete_the_folder, delete_the_table),
        *(cut, cut_at_a_line, flip, overwrite, swap, swap_commits, double, double_a_commit),
    )
}


def found(root: Path, truth: dict[str, Any]) -> str:
    """Read a lake, and start a run; return `right`, or the error that names the damage."""
    try:
        _require_the_same(root, truth)
    except LakeDamaged as error:
        return str(error)
    return "right"


def _require_the_same(root: Path, truth: dict[str, Any]) -> None:
    told = contents(Catalog(str(root)))
    if told != truth:  # the end of the last run is lost; the state before it is valid
        assert told["state"]["told"] < truth["state"]["told"], (told, truth)
    catalog = Catalog(str(root))
    with catalog.running():
        assert contents(catalog) == told


@given(how=st.sampled_from(sorted(DAMAGES)), seed=st.integers(0, 2**32))
@settings(max_examples=60, deadline=None)
def test_damage_is_reported_by_name_or_changes_nothing(
    lakes: tuple[Path, Path, dict[str, Any]], how: str, seed: int
) -> None:
    lake, copy, truth = lakes
    shutil.rmtree(copy, ignore_errors=True)
    shutil.copytree(lake, copy)
    damage(copy, how, random.Random(seed))
    said = found(copy, truth)
    assert said == "right" or str(copy) in said
