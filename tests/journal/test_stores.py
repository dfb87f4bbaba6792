"""Journals that are shipped to and read from an object store, a local S3 server."""

from __future__ import annotations

import socket
import sys
from collections.abc import Iterator
from pathlib import Path
from threading import Thread

import pytest
import uvicorn
from starlette.responses import Response
from tests.journal.rows import EVENTS, SPAN
from tests.support.s3 import SECRET, bucket, s3

from requite.chronicle import WriterRole
from requite.cli.app import run as run_command
from requite.errors import LogGone, StorageError
from requite.journal import Journal, JournalSettings
from requite.journal.folder import missing_logs
from requite.journal.ledger import faults
from requite.journal.reader import JournalTail, events
from requite.journal.shipping import Shipper
from requite.storage import Damage, LogReader, LogSettings
from requite.storage.ending import LOST
from requite.storage.layout import segment_name
from requite.storage.memory import MemoryLog
from requite.storage.remote import RemoteFile, RemoteFolder
from requite.storage.shipped import SHIPPED_NAME
from requite.storage.stores import FolderStore, Store, open_store

__all__ = ["bucket", "s3"]

NAME = bytes(range(8))
LOG = "broker-0001020304050607"


def fetch(store: Store, target: Path) -> Path:
    """Copy the objects of a log from a store to a folder; return the folder."""
    copy = FolderStore(target)
    for name, size in store.sizes(LOG).items():
        copy.put(name, store.get(name, size))
    return target


def test_a_journal_is_shipped_to_a_bucket_and_fetched_back(bucket: str, tmp_path: Path) -> None:
    store = open_store(f"{bucket.replace('s3:', 's3a:')}/of/one/machine/")
    with Journal(tmp_path / "journal", WriterRole.BROKER, NAME) as journal:
        shipper = Shipper(tmp_path / "journal", store)
        shipper.ship()
        journal.chronicle.spans.append(SPAN)
    shipper.ship()
    assert Shipper(tmp_path / "journal", store).ship().segments == 0
    assert store.sizes(".logs") == {f".logs/{LOG}": 0}
    found = [*events(fetch(store, tmp_path / "back"))]
    assert found == [*events(tmp_path / "journal")]
    assert "answered" in {event.kind for event in found}


def test_a_failing_store_does_not_stop_the_journal_and_gets_everything_later(
    bucket: str, tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings = JournalSettings(ship_to=f"{bucket}-that-are-not-there", ship_every_s=0.01)
    with Journal(tmp_path / "journal", WriterRole.BROKER, NAME, settings=settings) as journal:
        journal.chronicle.spans.append(SPAN)
    assert caplog.text.count("cannot copy the journal: cannot write s3://bucket-") == 1
    assert SECRET not in caplog.text
    assert "run `requite journal ship` to copy it" in caplog.text
    store = open_store(f"{bucket}/later")
    Shipper(tmp_path / "journal", store).ship()
    assert [*events(fetch(store, tmp_path / "back"))] == [*events(tmp_path / "journal")]


def test_missing_objects_and_buckets_are_errors(bucket: str) -> None:
    store = open_store(bucket)
    assert store.sizes("nothing") == {}
    with pytest.raises(LogGone):
        store.get("nothing/at-all", 10)
    with pytest.raises(StorageError, match="cannot write s3://nobodys"):
        open_store("s3://nobodys").put("name", b"data")


# --- reading from a store -------------------------------------------------------------------------
def shipped(folder: Path, bucket: str) -> str:
    """Write a journal of two logs and ship it; return its URL in the bucket."""
    for role in (WriterRole.BROKER, WriterRole.CLIENT):
        with Journal(folder, role, NAME) as journal:
            journal.chronicle.spans += [SPAN] * 3
            journal.chronicle.event_rows += EVENTS
    Shipper(folder, open_store(f"{bucket}/journal")).ship()
    return f"{bucket}/journal"


def test_a_journal_is_read_where_it_was_shipped_to(
    bucket: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    place, folder = shipped(tmp_path / "journal", bucket), tmp_path / "journal"
    assert [*events(place)] == [*events(folder)]
    assert [*events(f"{place}/{LOG}")] == [*events(folder / LOG)]
    assert missing_logs(place) == []
    assert [*faults(place)] == [*faults(folder)]
    assert [*faults(place, {LOG, LOG.replace("broker", "client")})] == []
    outputs = []
    for journal in (str(folder), place.replace("s3:", "s3a:")):
        for verb in (["tail", "--json"], ["stats", "--json"], ["export", "--to", "-"]):
            assert run_command(["journal", verb[0], journal, *verb[1:]]) == 0
        outputs.append(capsys.readouterr().out)
    assert outputs[0] == outputs[1]
    back = tmp_path / "back"
    assert run_command(["journal", "ship", place, str(back)]) == 0
    assert [*events(back)] == [*events(folder)]


def test_a_journal_is_followed_while_it_is_shipped(bucket: str, tmp_path: Path) -> None:
    folder, store = tmp_path / "journal", open_store(f"{bucket}/live")
    with Journal(folder, WriterRole.BROKER, NAME) as journal:
        shipper = Shipper(folder, store)
        shipper.ship()
        tail = JournalTail(store.url)
        assert LogReader(f"{store.url}/{LOG}").may_grow()
        journal.chronicle.spans.append(SPAN)
    shipper.ship()
    found = tail.news()
    assert "answered" in {event.kind for event in found}
    assert tail.news() == []
    assert not LogReader(f"{store.url}/{LOG}").may_grow()


def test_missing_logs_and_ends_in_a_store_are_reported(bucket: str, tmp_path: Path) -> None:
    place = shipped(tmp_path / "journal", bucket)
    store = open_store(place)
    path = f"{LOG}/{segment_name(0)}"
    whole = store.get(path, 1 << 20)
    note = store.get(f"{LOG}/{SHIPPED_NAME}", 1 << 20)
    store.put(path, whole[:-24])  # without its END, so shorter than the shipping note says
    reader = LogReader(f"{place}/{LOG}")
    assert [item.reason for item in reader.read(0) if isinstance(item, Damage)] == [LOST]
    # As if the shipper had just replaced the segment, and not yet updated its note.
    store.put(f"{LOG}/{SHIPPED_NAME}", note.replace(b"true", b"false"))
    store.put(path, whole)
    assert not [item for item in LogReader(reader.folder.place).read(0) if isinstance(item, Damage)]
    store.put(".logs/worker-0001020304050607", b"")
    assert [log.log for log in missing_logs(place)] == ["worker-0001020304050607"]
    assert "the log worker-0001020304050607 was started, and is missing" in [*faults(place)]
    with pytest.raises(LogGone):
        LogReader(f"{place}/worker-0001020304050607").segments()


class CountingStore(FolderStore):
    """A folder store that records the size of each fetch in `fetched`."""

    def __init__(self, path: Path) -> None:
        super().__init__(path)
        self.fetched: list[int] = []

    def get(self, name: str, size: int, offset: int = 0) -> bytes:
        data = super().get(name, size, offset)
        self.fetched.append(len(data))
        return data


def test_a_segment_is_fetched_in_parts_and_its_info_is_cached(tmp_path: Path) -> None:
    log = MemoryLog(b"TEST", LogSettings(segment_size_bytes=32 << 20))
    payloads = [bytes([number]) * (1 << 20) for number in range(24)]
    log.append(payloads)
    log.rotate()
    file = log.folder.open(segment_name(0))
    (tmp_path / LOG).mkdir()
    (tmp_path / LOG / segment_name(0)).write_bytes(file.read(file.size(), 0))
    store = CountingStore(tmp_path)
    reader = LogReader.on(RemoteFolder(store, LOG))
    assert reader.segments()[0].sealed
    assert sum(store.fetched) < 1024
    store.fetched.clear()
    reader.segments()
    assert store.fetched == []  # the info of an unchanged segment is cached
    found = [bytes(item.payload) for item in reader.read(0) if not isinstance(item, Damage)]
    assert found == payloads
    assert max(store.fetched) <= 4 << 20
    assert len(store.fetched) < 16


def test_a_copy_without_a_shipping_note_is_complete_after_15_minutes(
    bucket: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with Journal(tmp_path, WriterRole.BROKER, NAME) as journal:
        journal.chronicle.spans.append(SPAN)
    data = (tmp_path / LOG / segment_name(0)).read_bytes()
    open_store(bucket).put(f"{LOG}/{segment_name(0)}", data[:-24])
    reader = LogReader(f"{bucket}/{LOG}")
    assert reader.may_grow()
    assert reader.segments()[0].torn == ""
    monkeypatch.setattr(RemoteFile, "age_s", lambda _file: 901.0)
    assert not reader.may_grow()
    assert "cut off" in reader.segments()[0].torn


# --- stores that cannot be read -------------------------------------------------------------------
@pytest.fixture
def refusing() -> Iterator[str]:
    """Run a store that answers 403 to every request; yield its endpoint."""
    text = "The AWS Access Key Id you provided does not exist in our records."
    app = Response(f"<Error><Code>X</Code><Message>{text}</Message></Error>", 403)
    server = uvicorn.Server(uvicorn.Config(app, log_config=None, lifespan="off", ws="none"))
    with socket.create_server(("127.0.0.1", 0)) as listening:
        thread = Thread(target=server.run, args=([listening],))
        thread.start()
        yield f"http://127.0.0.1:{listening.getsockname()[1]}"
        server.should_exit = True
        thread.join()


@pytest.mark.parametrize(
    "verb", [["journal", "stats"], ["spark", "run", "--lake", "lake", "--journal"]]
)
def test_a_store_that_cannot_be_read_causes_a_one_sentence_error(
    bucket: str,
    refusing: str,
    verb: list[str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)

    def error_for(place: str) -> str:
        assert run_command([*verb, place]) == 2
        error = " ".join(capsys.readouterr().err.split())
        assert "Traceback" not in error
        assert SECRET not in error
        return error

    assert f"there is no journal at {bucket}: the place is empty" in error_for(bucket)
    open_store(bucket).put("photos/one.jpg", b"")
    assert f"{bucket} is not a journal: it contains photos, and no log" in error_for(bucket)
    assert "The specified bucket does not exist" in error_for("s3://nobodys-bucket/journal")
    assert "hdfs: is not supported" in error_for("hdfs://name/journal")
    assert "has no bucket" in error_for("s3://")
    assert "set them in the environment" in error_for(f"s3://me:{SECRET}@bucket/journal")
    monkeypatch.setenv("AWS_ENDPOINT_URL", refusing)
    assert "Access Key Id you provided does not exist" in error_for("s3a://bucket/journal")
    monkeypatch.setitem(sys.modules, "obstore", None)
    assert "requires packages that are not installed" in error_for("gs://bucket/journal")
    assert list(tmp_path.iterdir()) == []
