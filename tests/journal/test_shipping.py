"""Shipping a journal: in order and without loss, also when the shipper is killed."""

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
    """Raised by a `KillingStore` as if the shipper was killed."""


class CopiedFolder(MemoryFolder):
    """A folder in memory that readers treat as a shipped copy."""

    def is_copy(self) -> bool:
        return True

    def shipped(self) -> Shipped | None:  # type: ignore[override]
        try:
            return decode_shipped(self.open(SHIPPED_NAME).read(4096, 0))
        except LogGone:
            return None


class KillingStore:
    """A store in memory that raises `Killed`, before or after an operation.

    It does so at the check after the next `checks_left` ones; never, if None.
    """

    url = "memory"

    def __init__(self) -> None:
        self.folder = CopiedFolder()
        self.checks_left: int | None = None
        self.puts = 0

    def put(self, name: str, data: bytes) -> None:
        self._check()
        self.puts += 1
        if name.startswith(f"{LOG}/"):
            file = MemoryFile(len(data))
            file.write(data, 0)
            self.folder._files[name.rpartition("/")[2]] = file
        self._check()

    def get(self, name: str, size: int, offset: int = 0) -> bytes:
        return self.folder.open(name.rpartition("/")[2]).read(size, offset)

    def sizes(self, prefix: str) -> dict[str, int]:
        self._check()
        return {f"{LOG}/{name}": file.size() for name, file in self.folder._files.items()}

    def _check(self) -> None:
        if self.checks_left is not None:
            self.checks_left -= 1
            if self.checks_left < 0:
                raise Killed


def found_in(folder: MemoryFolder) -> list[bytes]:
    items = list(LogReader.on(folder).tail())
    assert damages(items) == []
    return payloads(items)


def test_a_shipper_that_is_killed_at_any_instant_loses_nothing() -> None:
    for seed in range(1000):
        ship_with_kills(random.Random(seed))


def ship_with_kills(rng: random.Random) -> None:
    log = MemoryLog(b"TEST", LogSettings(segment_size_bytes=4096))
    store = KillingStore()
    shipper = LogShipper(LOG, log.folder, store)
    written, seen = list[bytes](), 0
    for step in range(rng.randint(3, 12)):
        for _ in range(rng.randint(0, 4)):
            written.append(b"%d" % len(written) * rng.randint(1, 400))
            log.append(written[-1:])
        if rng.random() < 0.2:
            log.rotate()
        store.checks_left = rng.randint(0, 9) if rng.random() < 0.6 else None
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
    store.checks_left = None
    LogShipper(LOG, log.folder, store).ship()
    assert found_in(store.folder) == written
    assert not LogReader.on(store.folder).may_grow()
    puts = store.puts
    LogShipper(LOG, log.folder, store).ship()
    assert store.puts == puts + 2, "the entry of the log and its shipping note; no segment again"


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


def test_the_copy_of_a_torn_log_is_reported_as_torn(tmp_path: Path) -> None:
    source, target = tmp_path / "journal", tmp_path / "copy"
    with Journal(source, WriterRole.BROKER, NAME) as journal:
        journal.chronicle.spans.append(SPAN)
    [segment] = (source / LOG).glob("*.seg")
    os.truncate(segment, segment.stat().st_size - 50)  # its END, and a part of the record before it
    Shipper(source, open_store(str(target))).ship()
    expected = [(log.state, log.flaws) for log in stats(source)]
    assert [(log.state, log.flaws) for log in stats(target)] == expected
    assert expected[0][0] == "cut"


def test_records_missing_in_a_copy_are_reported(tmp_path: Path) -> None:
    source, target = tmp_path / "journal", tmp_path / "copy"
    with Journal(source, WriterRole.BROKER, NAME) as journal:
        for _ in range(5):
            journal.chronicle.spans.append(SPAN)
        Shipper(source, open_store(str(target))).ship()
    [segment] = (target / LOG).glob("*.seg")
    os.truncate(segment, segment.stat().st_size - 50)
    assert [event.reason for event in events(target) if event.raw is not None] == [LOST]


def test_an_invalid_shipping_note_is_none() -> None:
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
    ("url", "message"),
    [
        ("hdfs://host/journals", "journals are copied to a folder, or a store under s3://"),
        ("s3://key:secret@bucket/journals", "set them in the environment"),
    ],
)
def test_invalid_urls_of_stores_are_refused(url: str, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        open_store(url)


def test_failures_of_a_folder_store_are_storage_errors(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    store = FolderStore(tmp_path / "file")
    with pytest.raises(StorageError, match="cannot write"):
        store.put("a/b", b"")
    with pytest.raises(LogGone):
        FolderStore(tmp_path).get("nothing", 10)
