"""Shipping a journal: in order, once, whenever the shipper is killed."""

from __future__ import annotations

import os
import random
import shutil
from pathlib import Path

import pytest
from tests.journal.rows import SPAN
from tests.storage.helpers import damages, payloads

from requite.chronicle import WriterRole
from requite.errors import LogGone, StorageError
from requite.journal import Journal
from requite.journal.folder import missing_logs
from requite.journal.reader import events
from requite.journal.shipping import Freight, LogShipper, Shipper
from requite.journal.stats import stats
from requite.storage import LogReader, LogSettings, MemoryFolder, MemoryLog
from requite.storage.ending import LOST
from requite.storage.memory import MemoryFile
from requite.storage.shipped import SHIPPED_NAME, Shipped, decode_shipped, encode_shipped
from requite.storage.stores import FolderStore, open_store

NAME = bytes(range(8))
LOG = "broker-0001020304050607"


class Killed(Exception):
    """The shipper is killed."""


class CopiedFolder(MemoryFolder):
    """The copy of a log, as a reader finds it."""

    def is_copy(self) -> bool:
        return True

    def shipped(self) -> Shipped | None:  # type: ignore[override]
        try:
            return decode_shipped(self.open(SHIPPED_NAME).read(4096, 0))
        except LogGone:
            return None


class MortalStore:
    """A store in memory. After `lives` more operations, before or after one, its user is killed."""

    url = "memory"

    def __init__(self) -> None:
        self.folder = CopiedFolder()
        self.lives: int | None = None
        self.puts = 0

    def put(self, name: str, data: bytes) -> None:
        self._live()
        self.puts += 1
        if name.startswith(f"{LOG}/"):
            file = MemoryFile(len(data))
            file.write(data, 0)
            self.folder._files[name.rpartition("/")[2]] = file
        self._live()

    def get(self, name: str, size: int, offset: int = 0) -> bytes:
        return self.folder.open(name.rpartition("/")[2]).read(size, offset)

    def sizes(self, prefix: str) -> dict[str, int]:
        self._live()
        return {f"{LOG}/{name}": file.size() for name, file in self.folder._files.items()}

    def _live(self) -> None:
        if self.lives is not None:
            self.lives -= 1
            if self.lives < 0:
                raise Killed


def found_in(folder: MemoryFolder) -> list[bytes]:
    items = list(LogReader.on(folder).tail())
    assert damages(items) == []
    return payloads(items)


def test_a_shipper_that_dies_at_any_instant_loses_nothing() -> None:
    for seed in range(1000):
        ship_and_die(random.Random(seed))


def ship_and_die(rng: random.Random) -> None:
    log = MemoryLog(b"TEST", LogSettings(segment_size_bytes=4096))
    store = MortalStore()
    shipper = LogShipper(LOG, log.folder, store)
    written, seen = list[bytes](), 0
    for step in range(rng.randint(3, 12)):
        for _ in range(rng.randint(0, 4)):
            written.append(b"%d" % len(written) * rng.randint(1, 400))
            log.append(written[-1:])
        if rng.random() < 0.2:
            log.rotate()
        store.lives = rng.randint(0, 9) if rng.random() < 0.6 else None
        try:
            shipper.ship()
            assert found_in(store.folder) == written
        except Killed:
            shipper = LogShipper(LOG, log.folder, store)
        copied = found_in(store.folder)
        assert copied == written[: len(copied)]
        assert len(copied) >= seen, f"step {step}"
        seen = len(copied)
    log.close()
    store.lives = None
    LogShipper(LOG, log.folder, store).ship()
    assert found_in(store.folder) == written
    assert not LogReader.on(store.folder).may_grow()
    puts = store.puts
    LogShipper(LOG, log.folder, store).ship()
    assert store.puts == puts + 2, "that it began, and up to where it goes; no segment again"


def test_a_journal_is_shipped_while_it_is_written(tmp_path: Path) -> None:
    source, target = tmp_path / "journal", tmp_path / "copy"
    with Journal(source, WriterRole.BROKER, NAME) as journal:
        shipper = Shipper(source, open_store(str(target)))
        first = shipper.ship()
        assert first.segments == 1
        with Journal(source, WriterRole.CLIENT, NAME) as other:
            other.chronicle.spans.append(SPAN)
        journal.chronicle.spans.append(SPAN)
        shipper.ship()
        assert {log.state for log in stats(target)} == {"open", "closed"}
    assert shipper.ship().segments == 1
    assert shipper.ship() == Freight()
    assert [*events(target)] == [*events(source)]
    assert {log.state for log in stats(target)} == {"closed"}
    shutil.rmtree(target / LOG)
    assert [log.log for log in missing_logs(target)] == [LOG]


def test_a_writer_that_was_killed_is_told_at_the_copy_as_well(tmp_path: Path) -> None:
    source, target = tmp_path / "journal", tmp_path / "copy"
    with Journal(source, WriterRole.BROKER, NAME) as journal:
        journal.chronicle.spans.append(SPAN)
    [segment] = (source / LOG).glob("*.seg")
    os.truncate(segment, segment.stat().st_size - 50)  # its END, and a part of what is before
    Shipper(source, open_store(str(target))).ship()
    told = [(log.state, log.flaws) for log in stats(source)]
    assert [(log.state, log.flaws) for log in stats(target)] == told
    assert told[0][0] == "cut"


def test_what_a_copy_should_have_and_has_not_is_told(tmp_path: Path) -> None:
    source, target = tmp_path / "journal", tmp_path / "copy"
    with Journal(source, WriterRole.BROKER, NAME) as journal:
        for _ in range(5):
            journal.chronicle.spans.append(SPAN)
        Shipper(source, open_store(str(target))).ship()
    [segment] = (target / LOG).glob("*.seg")
    os.truncate(segment, segment.stat().st_size - 50)
    assert [event.reason for event in events(target) if event.raw is not None] == [LOST]


def test_a_note_that_cannot_be_read_is_none() -> None:
    shipped = Shipped(0, 4096, False)
    assert decode_shipped(encode_shipped(shipped)) == shipped
    for note in (
        b"",
        b"{}",
        b"[]",
        b'{"segment": 0, "offset": "9", "is_ended": true, "torn": ""}',
        b"\xff",
    ):
        assert decode_shipped(note) is None


@pytest.mark.parametrize(
    ("url", "told"),
    [
        ("hdfs://host/journals", "journals are copied to a folder, or a store under s3://"),
        ("s3://key:secret@bucket/journals", "set them in the environment"),
    ],
)
def test_stores_that_cannot_be_are_refused(url: str, told: str) -> None:
    with pytest.raises(ValueError, match=told):
        open_store(url)


def test_a_folder_that_cannot_be_written_is_told(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    store = FolderStore(tmp_path / "file")
    with pytest.raises(StorageError, match="cannot write"):
        store.put("a/b", b"")
    with pytest.raises(LogGone):
        FolderStore(tmp_path).get("nothing", 10)
