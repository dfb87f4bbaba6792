"""The store: opening and locking, storing and loading, its size limit, and compaction."""

from __future__ import annotations

import errno
import gc
import os
import queue
import shutil
import threading
import zlib
from binascii import unhexlify
from contextlib import closing
from itertools import islice
from pathlib import Path
from random import Random

import pytest
from tests.titanic.life import SMALL, LocalTitanic

from requite.engine import Input, Load, Loaded, LoadFailed, Store, Stored, StoreFailed
from requite.errors import (
    ConfigurationError,
    LogFailed,
    LogFull,
    LogLocked,
    LogMismatch,
)
from requite.protocols.titanic.records import (
    StoreRole,
    encode_closed,
    encode_role,
    encode_submitted,
)
from requite.protocols.titanic.requests import CLOSED, DurableRequest, Recovered
from requite.protocols.titanic.wire import CLOSE, LIST, REPLY, REQUEST
from requite.sim.kernel.disk import SimDisk
from requite.storage import Log, MemoryFolder
from requite.storage.layout import SegmentHeader, encode_header
from requite.titanic.compaction import BITE_BYTES
from requite.titanic.store import StoreSettings, open_memory, open_store
from requite.titanic.uuids import uuids


def submitted(n: int, size: int = 10) -> bytes:
    return encode_submitted(n.to_bytes(16, "big"), 1, b"echo", b"", [bytes(size)])


# --- opening --------------------------------------------------------------------------------------
def test_a_second_process_on_the_folder_is_refused(tmp_path: Path) -> None:
    first = open_store(tmp_path / "kept")
    with pytest.raises(LogLocked, match=f"process {os.getpid()}"):
        open_store(tmp_path / "kept")
    first.close()
    open_store(tmp_path / "kept").close()


def test_a_folder_with_other_things_in_it_is_refused(tmp_path: Path) -> None:
    (tmp_path / "letters.txt").write_text("dear diary")
    with pytest.raises(LogMismatch, match="other files"):
        open_store(tmp_path)
    assert os.listdir(tmp_path) == ["letters.txt"]


def test_a_file_instead_of_a_folder_is_refused(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(LogMismatch, match="is a file"):
        open_store(tmp_path / "file")


def test_a_log_for_something_else_is_refused(tmp_path: Path) -> None:
    with Log.open(tmp_path / "log", purpose=b"JRNL") as log:
        log.append([b"not ours"])
    with pytest.raises(LogMismatch, match="another purpose"):
        open_store(tmp_path / "log")


def test_a_newer_log_is_refused(tmp_path: Path) -> None:
    header = bytearray(encode_header(SegmentHeader(0, 0, bytes(16), b"TITN")))
    header[8] = 2
    header[60:] = zlib.crc32(bytes(header[:60])).to_bytes(4, "little")
    (tmp_path / "00000000000000000000.seg").write_bytes(bytes(header) + bytes(4096))
    with pytest.raises(LogMismatch, match="newer requite"):
        open_store(tmp_path)


@pytest.mark.parametrize(
    "record", [b"", b"short", b"\x01\x02" + bytes(40), b"\x09\x01" + bytes(40)]
)
def test_records_of_a_newer_requite_are_refused(tmp_path: Path, record: bytes) -> None:
    with Log.open(tmp_path / "log", purpose=b"TITN") as log:
        log.append([record])
    for _ in range(2):
        with pytest.raises(LogMismatch, match="newer requite"):
            open_store(tmp_path / "log")


@pytest.mark.parametrize("error", [errno.EROFS, errno.EACCES, errno.EPERM])
def test_a_folder_that_cannot_be_written_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, error: int
) -> None:
    """Simulate the error of the system, since root may write everywhere."""
    real = os.open

    def refusing(path: str, flags: int, *more: int) -> int:
        if flags & (os.O_RDWR | os.O_CREAT) and str(tmp_path) in str(path):
            raise OSError(error, os.strerror(error), path)
        return real(path, flags, *more)

    monkeypatch.setattr(os, "open", refusing)
    with pytest.raises(LogFailed, match="permissions"):
        open_store(tmp_path)


def test_invalid_settings_are_refused() -> None:
    with pytest.raises(ConfigurationError, match="five segments"):
        StoreSettings(disk_bytes_max=1 << 20)
    with pytest.raises(ConfigurationError, match="compact_below"):
        StoreSettings(compact_below=2.0)


def test_uuids_are_of_version_4() -> None:
    made = set(islice(uuids(), 1000))
    assert len(made) == 1000
    assert {uuid[6] >> 4 for uuid in made} == {4}
    assert {uuid[8] >> 6 for uuid in made} == {2}


# --- storing and loading --------------------------------------------------------------------------
def test_records_submitted_together_share_a_sync() -> None:
    disk = SimDisk()
    store = open_memory(SMALL.__class__(segment_size_bytes=1 << 20), folder=disk)
    syncs = 0
    for n in range(20):
        store.submit(Store(n, [submitted(2 * n), submitted(2 * n + 1)]))
    before = disk.operations
    done = store.work()
    syncs = disk.operations - before - 1  # minus one write
    assert [one.ticket for one in done if isinstance(one, Stored)] == list(range(20))
    assert all(len(one.positions) == 2 for one in done if isinstance(one, Stored))
    assert syncs == 1
    assert store.view().commits == 1


def test_a_record_is_readable_after_compaction_moved_it() -> None:
    settings = StoreSettings(segment_size_bytes=4096, sync=False)
    store = open_memory(settings)
    store.submit(Store("kept", [submitted(1, 100)]))
    [stored] = store.work()
    assert isinstance(stored, Stored)
    [place] = stored.positions
    for n in range(2, 80):
        uuid = n.to_bytes(16, "big")
        store.submit(Store(n, [submitted(n, 100)]))
        store.submit(Store(-n, [encode_closed(uuid, 1, b"", 0)]))
        store.work()
    assert store.view().removed_segments > 2
    assert place.segment > 0
    store.submit(Load("it", place))
    assert store.work() == [Loaded("it", submitted(1, 100))]


def test_a_damaged_record_is_reported() -> None:
    folder = MemoryFolder()
    store = open_memory(SMALL, folder=folder)
    store.submit(Store("kept", [submitted(1, 100)]))
    [stored] = store.work()
    assert isinstance(stored, Stored)
    file = folder.open(folder.names()[0])
    file.write(b"\xff", 150)
    store.submit(Load("it", stored.positions[0]))
    [failed] = store.work()
    assert isinstance(failed, LoadFailed)
    assert "damaged" in str(failed.error)


def test_a_full_disk_stores_what_fits() -> None:
    disk = SimDisk()
    store = open_memory(StoreSettings(segment_size_bytes=4096), folder=disk)
    disk.is_full = True
    store.submit(Store("large", [submitted(n, 1000) for n in range(5)]))
    store.submit(Store("small", [submitted(9)]))
    large, small = store.work()
    assert isinstance(large, StoreFailed)
    assert isinstance(large.error, LogFull)
    assert isinstance(small, Stored)
    disk.is_full = False
    store.submit(Store("large", [submitted(n, 1000) for n in range(5)]))
    [large] = store.work()
    assert isinstance(large, Stored)


def test_a_thread_does_the_work(tmp_path: Path) -> None:
    store = open_store(tmp_path / "kept", StoreSettings(segment_size_bytes=1 << 20))
    done: list[Input] = []
    came = threading.Condition()

    def take(inputs: list[Input]) -> None:
        with came:
            done.extend(inputs)
            came.notify()

    store.start(take)
    for n in range(200):
        store.submit(Store(n, [submitted(n)]))
    with came:
        assert came.wait_for(lambda: len(done) == 200, timeout=30)
    assert [one.ticket for one in done] == list(range(200))
    store.submit(Store("last", [submitted(999)]))
    store.close()
    assert done[-1].ticket == "last"
    store.close()
    again = open_store(tmp_path / "kept")
    assert len(again.recovered.requests) == 201
    again.start(take)
    assert again.recovered.requests == ()  # the engine has them: they would double its memory
    again.close()


def test_the_thread_reports_a_bug_and_continues(
    caplog: pytest.LogCaptureFixture,
) -> None:
    store = open_memory(SMALL)
    done: queue.Queue[list[Input]] = queue.Queue()
    store.start(done.put)
    store.submit(Load("bad", "no place"))
    [failed] = done.get(timeout=30)
    assert isinstance(failed, LoadFailed)
    assert "AttributeError" in str(failed.error)
    assert "the store has failed" in caplog.text
    store.submit(Store("good", [submitted(1)]))
    [stored] = done.get(timeout=30)
    assert isinstance(stored, Stored)
    store.close()


# --- the size limit -------------------------------------------------------------------------------
def test_a_store_at_its_limit_can_be_emptied() -> None:
    """Fill a store with waiting requests.

    Replies can still be stored. Once all requests are closed, there is room again.
    """
    limit = 12 * 4096
    settings = StoreSettings(segment_size_bytes=4096, disk_bytes_max=limit, sync=False)
    life = LocalTitanic(MemoryFolder(), settings, service_window=1000, window=1000)
    life.serves = False
    tickets = []
    while (answer := life.ask(REQUEST, b"echo", b"x" * 100))[0] == b"200":
        tickets.append(answer[1])
    assert "disk_bytes_max" in answer[0].decode()
    assert answer[0].startswith(b"500")
    assert len(tickets) > 50
    calls, life.submits, life.serves = life.submits, [], True
    for call in calls:
        life.feed(list(life._called(call)))
    life.wait(5.0)
    assert all(life.ask(REPLY, ticket)[0] == b"200" for ticket in tickets)
    assert life.store.view().disk_bytes <= limit
    for ticket in tickets:
        assert life.ask(CLOSE, ticket) == [b"200"]
        assert life.store.view().disk_bytes <= limit
    life.compact()
    assert life.ask(REQUEST, b"echo", b"again")[0] == b"200"


# --- compaction -----------------------------------------------------------------------------------
def test_requests_are_stored_between_small_steps_of_compaction() -> None:
    settings = StoreSettings(segment_size_bytes=4 << 20, sync=False, compact_below=0.6)
    store = open_memory(settings)
    for n in range(0, 4000, 10):
        store.submit(Store(n, [submitted(n + i, 1000) for i in range(10)]))
        closed = [encode_closed((n + i).to_bytes(16, "big"), 1, b"", 0) for i in range(5)]
        store.submit(Store(-n, closed))
    done = store.work()
    assert len(done) == 800
    bites = 0
    for n in range(4000, 4200):
        before = store.view()
        store.submit(Store(n, [submitted(n)]))
        assert [one.ticket for one in store.work()] == [n]  # compaction delays no request
        moved = store.view().moved_bytes - before.moved_bytes
        assert moved <= BITE_BYTES + 2000
        bites += moved > 0
    assert bites > 5
    assert store.view().removed_segments > 0


@pytest.mark.parametrize("seed", range(8))
def test_a_reopened_store_has_all_requests_and_replies(seed: int) -> None:
    random, folder = Random(seed), MemoryFolder()
    settings = StoreSettings(segment_size_bytes=4096, sync=False, compact_below=0.8)
    kept: dict[bytes, bytes] = {}
    closed: set[bytes] = set()
    for at in range(6):
        life = LocalTitanic(
            folder, settings, now=100.0 + at, seed=seed * 100 + at, key_window_s=5.0
        )
        for ticket, body in kept.items():
            assert life.ask(REPLY, ticket) == [b"200", b"re:" + body]
        for ticket in closed:
            assert life.ask(REPLY, ticket)[0].startswith(b"400")
        for n in range(30):
            body = b"%d-%d" % (at, n) + b"x" * random.randrange(200)
            ticket = life.submit(body, key=body if random.random() < 0.5 else b"")
            kept[ticket] = body
            if random.random() < 0.7:
                ticket = random.choice(list(kept))
                assert life.ask(CLOSE, ticket) == [b"200"]
                closed.add(ticket)
                del kept[ticket]
            life.compact(random.randrange(4))
        life.close()
    assert life.store.view().removed_segments


def test_no_records_remain_once_all_requests_are_closed() -> None:
    folder = MemoryFolder()
    life = LocalTitanic(folder, SMALL, key_window_s=10.0)
    tickets = [life.submit(b"x" * 100, key=b"%d" % n) for n in range(100)]
    for ticket in tickets:
        life.ask(CLOSE, ticket)
    life.compact()
    assert life.store.view().live_bytes > 0  # idempotency keys keep records alive
    life.wait(20.0)
    life.compact()
    assert life.store.view().live_bytes == 0
    assert life.store.view().segments == 1
    assert life.store._index.items == {}
    assert life.ask(LIST)[1] == b""


def test_closed_requests_do_not_stay_in_memory() -> None:
    folder = MemoryFolder()
    life = LocalTitanic(folder)
    tickets = [life.submit(b"%d" % n) for n in range(600)]
    life.wait(1.0)
    life.close()
    life = LocalTitanic(folder)
    life.wait(1.0)
    assert life.engine.snapshot().answered == 600
    own = set(map(unhexlify, tickets))
    for ticket in tickets:
        life.ask(CLOSE, ticket)
    life.store.recovered = Recovered()
    gc.collect()
    held = [one for one in gc.get_objects() if isinstance(one, DurableRequest)]
    closed = [one for one in held if one.uuid in own and one.state is CLOSED]
    assert len(closed) <= 256  # the register removes them from its list in batches
    life.close()


def test_a_segment_with_an_unreadable_record_is_not_removed() -> None:
    folder = MemoryFolder()
    life = LocalTitanic(folder, SMALL, cache_bytes_max=0)
    first = life.submit(b"x" * 100)
    name = folder.names()[0]
    others = [life.submit(b"y" * 100) for _ in range(30)]
    folder.open(name).write(b"\xff", 150)  # within the first record
    for ticket in others:
        life.ask(CLOSE, ticket)
    life.compact()
    assert life.store.view().damaged
    assert name in folder.names()
    assert life.ask(REPLY, first)[0] in (b"200", b"300") or life.warnings


def test_compaction_keeps_the_role() -> None:
    folder = MemoryFolder()
    store = open_memory(SMALL, folder=folder)
    store.submit(Store("role", [encode_role(StoreRole(1, True, b"l" * 16, 7))]))
    for n in range(200):
        store.submit(Store(n, [submitted(n), encode_closed(n.to_bytes(16, "big"), 1, b"", 0)]))
        store.work()
    assert store.view().removed_segments
    store.close()
    role = open_memory(SMALL, folder=folder).recovered.role
    assert role is not None
    assert (role.replica, role.log_id, role.next_number) == (True, b"l" * 16, 7)


def test_a_store_without_a_limit_is_limited_by_its_disk(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Otherwise requests could fill the disk and leave no room for replies."""
    usage = shutil.disk_usage(tmp_path)
    monkeypatch.setattr(shutil, "disk_usage", lambda _place: usage._replace(free=80 << 20))
    with closing(open_store(tmp_path / "not" / "yet")) as store:
        assert store.settings.disk_bytes_max == 80 << 20
        assert store.settings.segment_size_bytes == 10 << 20
