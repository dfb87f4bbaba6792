"""Random damage to a journal: files deleted, truncated, duplicated, swapped or changed.

The oracle is the undamaged journal. After the damage a reader yields the same events, or reports a
fault: a row that does not decode, or an entry of the ledger.
"""

from __future__ import annotations

import random
import shutil
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.spark.source.journals import LogWriter, span
from tests.spark.source.test_stream import steps, stream_reader

from requite.chronicle import EventRow, Kind, WriterRole
from requite.journal.folder import enrol

COLUMNS = ("log", "segment", "byte_offset", "kind", "request_id", "ts")


Truth = Counter[tuple[object, ...]]


class Undamaged:
    """An undamaged journal, a path for damaged copies of it, and its events."""

    def __init__(self, journal: Path, damaged: Path, truth: Truth) -> None:
        self.journal, self.damaged, self.truth = journal, damaged, truth


@pytest.fixture(scope="module")
def undamaged(tmp_path_factory: pytest.TempPathFactory) -> Undamaged:
    """A journal of four logs; the log of the broker has several segments."""
    folder = tmp_path_factory.mktemp("journals")
    journal = folder / "journal"
    rows = {
        WriterRole.BROKER: 300,
        WriterRole.CLIENT: 10,
        WriterRole.WORKER: 10,
        WriterRole.MANAGER: 0,
    }
    for number, (role, count) in enumerate(rows.items()):
        name = bytes([number] * 8)
        with LogWriter(journal, role, name, segment_size=10_000, nameless=False) as writer:
            for start in range(0, count, 10):
                writer.spans([span(each, each / 8) for each in range(start, start + 10)])
            writer.event_rows([EventRow(99.0, Kind.CLOSED)])
        enrol(writer.path)
    truth, faults = read(journal)
    assert not faults
    assert truth.total() > 960
    assert len(list(journal.glob("broker-*/*.seg"))) > 2
    return Undamaged(journal, folder / "damaged", truth)


def read(journal: Path) -> tuple[Truth, list[str]]:
    """Return the events of a journal, and the faults that its reader reports."""
    reader = stream_reader(journal)
    offsets = steps(reader, reader.initialOffset())
    events: Truth = Counter()
    faults: list[str] = []
    for part in reader.partitions(offsets[0], offsets[-1]) if len(offsets) > 1 else []:
        for batch in reader.read(part):
            good = batch.filter(batch.column("raw").is_null())
            faults += batch.filter(batch.column("raw").is_valid()).column("reason").to_pylist()
            events.update(zip(*(good.column(name).to_pylist() for name in COLUMNS), strict=True))
    ended = {str(event[0]) for event in events if event[COLUMNS.index("kind")] == "closed"}
    return events, faults + reader.faults(ended)


def delete(victim: Path, other: Path, luck: random.Random) -> None:
    victim.unlink()


def delete_the_log(victim: Path, other: Path, luck: random.Random) -> None:
    if victim.parent.name != ".logs":
        shutil.rmtree(victim.parent)


def cut(victim: Path, other: Path, luck: random.Random) -> None:
    victim.write_bytes(victim.read_bytes()[: luck.randrange(victim.stat().st_size + 1)])


def cut_at_a_word(victim: Path, other: Path, luck: random.Random) -> None:
    victim.write_bytes(victim.read_bytes()[: 8 * luck.randrange(victim.stat().st_size // 8 + 1)])


def flip(victim: Path, other: Path, luck: random.Random) -> None:
    content = bytearray(victim.read_bytes())
    if content:
        content[luck.randrange(len(content))] ^= 1 << luck.randrange(8)
        victim.write_bytes(content)


def overwrite(victim: Path, other: Path, luck: random.Random) -> None:
    victim.write_bytes(other.read_bytes())


def swap(victim: Path, other: Path, luck: random.Random) -> None:
    ours, theirs = victim.read_bytes(), other.read_bytes()
    victim.write_bytes(theirs)
    other.write_bytes(ours)


def swap_logs(victim: Path, other: Path, luck: random.Random) -> None:
    if ".logs" in (victim.parent.name, other.parent.name) or victim.parent == other.parent:
        return
    for source, target in ((victim.parent, "x"), (other.parent, victim.parent.name)):
        source.rename(source.with_name(target))
    victim.parent.with_name("x").rename(other.parent)


def double(victim: Path, other: Path, luck: random.Random) -> None:
    if victim.suffix == ".seg":
        target = other.with_name(f"{luck.randrange(1, 1_000):020}.seg")
        if target != victim:
            shutil.copyfile(victim, target)


def double_the_log(victim: Path, other: Path, luck: random.Random) -> None:
    if victim.parent.name != ".logs":
        shutil.copytree(victim.parent, victim.parent.with_name("broker-00ff00ff00ff00ff"))


DAMAGES: dict[str, Callable[[Path, Path, random.Random], None]] = {
    act.__name__: act
    for act in (
        *(delete, delete_the_log, cut, cut_at_a_word, flip, overwrite, swap, swap_logs),
        *(double, double_the_log),
    )
}


@given(how=st.sampled_from(sorted(DAMAGES)), seed=st.integers(0, 2**32))
@settings(max_examples=40, deadline=None)
def test_no_event_is_lost_without_a_report(undamaged: Undamaged, how: str, seed: int) -> None:
    damaged, luck = undamaged.damaged, random.Random(seed)
    shutil.rmtree(damaged, ignore_errors=True)
    shutil.copytree(undamaged.journal, damaged)
    # With the locks of the original, the copy would count as a log that may still grow.
    for lock in damaged.glob("*/lock"):
        lock.write_text("1\n")
    files = sorted(path for path in damaged.rglob("*") if path.is_file() and path.name != "lock")
    victim, other = luck.choice(files), luck.choice(files)
    DAMAGES[how](victim, other, luck)
    found, faults = read(damaged)
    if not faults:
        lost, added = undamaged.truth - found, found - undamaged.truth
        assert (len(lost), len(added)) == (0, 0), f"{victim} {other}"
