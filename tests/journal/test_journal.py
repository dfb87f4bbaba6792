"""`Journal` on a real disk: its thread, closing, killed processes, and full or hanging disks."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import threading
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from time import monotonic

import pytest
from tests.journal.faulty import FaultyDisk, FaultyLog
from tests.journal.rows import SPAN
from tests.journal.writing import NAME, QUICK
from tests.support.builds import constant_replaced
from tests.support.live import ROOT, eventually

from requite import chronicle as chronicles
from requite.chronicle import PRESS_ROWS, Chronicle, WriterRole
from requite.journal import Journal, JournalSettings
from requite.journal.encode import press_spans
from requite.journal.reader import events
from requite.journal.stats import stats
from requite.storage import Position


def kinds(directory: Path) -> Counter[str | None]:
    return Counter(event.kind for event in events(directory))


def test_a_journal_records_its_opening_spans_and_closing(tmp_path):
    with Journal(tmp_path / "new" / "journal", WriterRole.BROKER, NAME) as journal:
        journal.chronicle.spans.append(SPAN)
    assert [event.kind for event in events(tmp_path / "new" / "journal")] == [
        *("opened", "accepted", "queued", "dispatched", "answered", "closed")
    ]
    assert journal.status()._replace(bytes_written=0) == (journal.path, 6, 0, 0, 0, "")


def test_closing_is_idempotent_and_allowed_before_the_start(tmp_path):
    journal = Journal(tmp_path, WriterRole.BROKER, NAME)
    journal.close()
    assert journal.status().failure == "not started"
    journal.start()
    journal.close()
    journal.close()
    assert kinds(tmp_path) == {"opened": 1, "closed": 1}


def test_rows_are_written_periodically(tmp_path):
    with Journal(tmp_path, WriterRole.BROKER, NAME, settings=QUICK) as journal:
        journal.chronicle.spans.append(SPAN)
        eventually(lambda: kinds(tmp_path)["answered"], "the row is written")


def test_no_row_is_lost_while_the_engine_presses_and_the_thread_writes(tmp_path):
    count = 100_000
    settings = JournalSettings(flush_every_s=0.001)
    with Journal(tmp_path, WriterRole.BROKER, NAME, settings=settings) as journal:
        spans = journal.chronicle.spans
        for _ in range(count):
            spans.append(SPAN)
            if len(spans) >= PRESS_ROWS:
                journal.chronicle.press()
            journal.chronicle.trim()
    (found,) = stats(tmp_path)
    assert found.events["answered"] == count
    assert (found.missing, found.dropped, found.flaws.total()) == (0, 0, 0)


def test_the_facts_of_a_log_describe_its_process(tmp_path):
    with Journal(tmp_path, WriterRole.WORKER, NAME):
        pass
    (found,) = stats(tmp_path)
    assert (found.facts["pid"], found.facts["role"]) == (os.getpid(), "worker")
    assert found.facts["name"] == NAME.hex()


def test_import_loads_no_third_party_package():
    script = (
        "import sys; before = set(sys.modules); import requite.journal.reader, requite.journal;"
        "print('\\n'.join(set(sys.modules) - before))"
    )
    run = subprocess.run([sys.executable, "-c", script], check=True, capture_output=True, text=True)
    loaded = {name.partition(".")[0] for name in run.stdout.split()}
    assert "requite" in loaded
    ours = {"requite", "requite__mypyc"}  # the second has the compiled code, if there is any
    assert not loaded - set(sys.stdlib_module_names) - ours


# --- killed processes, full disks -----------------------------------------------------------------
def writing(directory: Path, what: str) -> subprocess.Popen[str]:
    command = [sys.executable, "-m", "tests.journal.writing", str(directory), what]
    return subprocess.Popen(
        command, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )


def test_flushed_rows_survive_a_kill(tmp_path):
    process = writing(tmp_path, "kill")
    try:
        assert process.stdout.readline() == "written\n"
    finally:
        process.send_signal(signal.SIGKILL)
        process.communicate()
    assert kinds(tmp_path) == {
        **dict.fromkeys(("accepted", "queued", "dispatched", "answered"), 1_000),
        "opened": 1,
    }
    (found,) = stats(tmp_path)
    assert (found.state, found.missing, found.flaws.total()) == ("open", 0, 0)


def test_a_full_disk_does_not_block_and_every_lost_row_is_counted(tmp_path):
    process = writing(tmp_path, "full")
    out, err = process.communicate(timeout=50)
    assert process.returncode == 0, err
    result = json.loads(out)
    assert "File too large" in result["failure"]
    assert result["dropped"] > 0
    (found,) = stats(tmp_path)
    assert found.dropped == result["dropped"]
    assert found.events["answered"] + found.dropped == result["written"]
    assert (found.missing, found.flaws.total(), found.state) == (0, 0, "closed")
    assert err.count("cannot write the journal") == 1


def test_a_deleted_journal_is_started_again(tmp_path, caplog):
    with Journal(tmp_path / "journal", WriterRole.BROKER, NAME, settings=QUICK) as journal:
        journal.chronicle.spans.append(SPAN)
        eventually(lambda: kinds(tmp_path / "journal")["answered"], "the row is written")
        shutil.rmtree(tmp_path / "journal")
        journal.chronicle.spans.append(SPAN)
        eventually(lambda: journal.dropped, "it is noticed")
        journal.chronicle.spans.append(SPAN)
    assert "removed" in caplog.text
    found = kinds(tmp_path / "journal")
    assert found["answered"] >= 1
    assert found["dropped"] == 1
    assert found["closed"] == 1


def test_a_path_below_a_file_is_an_error_at_the_start(tmp_path):
    (tmp_path / "file").touch()
    with pytest.raises(ValueError, match="is a file"):
        Journal(tmp_path / "file" / "journal", WriterRole.BROKER, NAME).start()


# --- hanging disks --------------------------------------------------------------------------------
class HangingDisk(FaultyDisk):
    """A disk on which appends block, from `hang` until `wake` is called."""

    def __init__(self) -> None:
        super().__init__()
        self._awake = threading.Event()
        self._awake.set()
        self.is_hanging = threading.Event()

    def hang(self) -> None:
        self._awake.clear()

    def wake(self) -> None:
        self._awake.set()

    def open(self) -> HangingLog:
        return HangingLog(self)

    def wait(self) -> None:
        if not self._awake.is_set():
            self.is_hanging.set()
            self._awake.wait()


class HangingLog(FaultyLog):
    def __init__(self, disk: HangingDisk) -> None:
        super().__init__(disk)
        self._hanging = disk

    def append(self, payloads: list[bytes]) -> list[Position]:
        self._hanging.wait()
        return super().append(payloads)


@pytest.fixture
def hanging(tmp_path, monkeypatch) -> Callable[[float], tuple[Journal, HangingDisk]]:
    """Return a function that starts a journal on a `HangingDisk`; wake all disks at the end."""
    disks: list[HangingDisk] = []

    def start(close_timeout_s: float) -> tuple[Journal, HangingDisk]:
        disk = HangingDisk()
        disks.append(disk)
        monkeypatch.setattr("requite.journal.journal._Place", lambda *_: disk)
        settings = JournalSettings(flush_every_s=0.005, close_timeout_s=close_timeout_s)
        journal = Journal(tmp_path, WriterRole.BROKER, NAME, settings=settings)
        journal.start()
        return journal, disk

    yield start
    for disk in disks:
        disk.wake()


@constant_replaced
def test_a_hanging_disk_drops_rows_and_does_not_use_more_memory(hanging, monkeypatch):
    monkeypatch.setattr(chronicles, "ROWS_MAX", 1_000)
    journal, disk = hanging(10.0)
    disk.hang()
    journal.chronicle.spans.append(SPAN)
    assert disk.is_hanging.wait(10)
    for _ in range(5_000):  # the engine continues, and trims its tables from time to time
        journal.chronicle.spans.append(SPAN)
        journal.chronicle.trim()
        assert journal.chronicle.waiting <= 1_000
    lost = journal.dropped
    assert lost >= 4_000
    disk.wake()
    journal.close()
    found = Counter(event.kind for event in disk.events())
    recorded = sum(event.dropped or 0 for event in disk.events())
    assert recorded == lost
    assert found["answered"] + lost == 5_001


def test_closing_times_out_on_a_hanging_disk(hanging, caplog):
    journal, disk = hanging(0.05)
    disk.hang()
    journal.chronicle.spans.append(SPAN)
    assert disk.is_hanging.wait(10)
    began = monotonic()
    journal.close()
    assert monotonic() - began < 5
    assert "does not respond" in caplog.text


# --- chronicle ------------------------------------------------------------------------------------
@constant_replaced
def test_pressed_rows_count_as_waiting_and_can_be_dropped(monkeypatch):
    monkeypatch.setattr(chronicles, "ROWS_MAX", 10)
    chronicle = Chronicle(press_spans, threading.Lock())
    chronicle.spans += [SPAN] * 8
    chronicle.press()
    chronicle.spans += [SPAN] * 2
    assert chronicle.waiting == 10
    chronicle.trim()
    assert chronicle.dropped == 0
    chronicle.spans.append(SPAN)
    chronicle.trim()
    assert (chronicle.dropped, chronicle.waiting) == (11, 0)
    assert chronicle.take() == ([], [], [])
