"""Several processes on one log: killed writers, concurrent readers, a second writer."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from tests.storage.helpers import damages, open_small, payloads

from requite.errors import LogFull, LogLocked
from requite.storage import LogReader
from requite.storage.ending import TORN

pytestmark = pytest.mark.e2e

WRITER = """
import itertools, sys
from requite.storage import Log, LogSettings

settings = LogSettings(segment_size_bytes=int(sys.argv[2]), sync=sys.argv[3] == "sync")
with Log.open(sys.argv[1], purpose=b"TEST", settings=settings) as log:
    for batch in itertools.count():
        log.commit([b"%d " % (batch * 7 + n) * (batch % 50) for n in range(7)])
        print(log.next_number, flush=True)
"""

FILLER = """
import resource, sys
from requite.errors import LogFull
from requite.storage import Log, LogSettings

log = Log.open(sys.argv[1], purpose=b"TEST", settings=LogSettings(segment_size_bytes=8192))
log.commit([b"before"])
log._writer._file.truncate(log._writer.written_bytes)    # as if no space had been preallocated
resource.setrlimit(resource.RLIMIT_FSIZE, (4096, resource.RLIM_INFINITY))
for payloads in ([b"x" * 1000] * 6, [b"x" * 5000]):
    try:
        log.commit(payloads)
    except LogFull as error:
        print("full:", error)
log.commit([b"small"])
try:
    log.rotate()
except LogFull as error:
    print("full:", error)
resource.setrlimit(resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
log.commit([b"x" * 1000] * 20)
log.close()
"""


def payload(number: int) -> bytes:
    """Return the payload that `WRITER` writes as record `number`."""
    return b"%d " % number * (number // 7 % 50)


@contextmanager
def writing(
    directory: Path, size: int = 1 << 16, sync: str = "no"
) -> Iterator[subprocess.Popen[str]]:
    """Run a process that commits records until it is killed, and prints their count each time."""
    command = [sys.executable, "-c", WRITER, str(directory), str(size), sync]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        try:
            yield process
        finally:
            process.kill()


def next_count(process: subprocess.Popen[str]) -> int:
    """Return the number of committed records that the writer prints next."""
    assert process.stdout is not None
    return int(process.stdout.readline())


@pytest.mark.parametrize("sync", ["sync", "no"])
def test_records_committed_by_a_killed_writer_are_there(tmp_path: Path, sync: str) -> None:
    committed = 0
    for rounds in (1, 30, 100):
        with writing(tmp_path, sync=sync) as process:
            for _ in range(rounds):
                committed = next_count(process)
            process.send_signal(signal.SIGKILL)
            assert process.stdout is not None
            for line in process.stdout:
                committed = int(line)
            assert process.wait() == -signal.SIGKILL
        items = list(LogReader(tmp_path).tail())
        assert [damage.reason for damage in damages(items)] in ([], [TORN])
        assert len(payloads(items)) >= committed
        with open_small(tmp_path) as log:
            assert log.recovered.damaged == ()
            assert log.next_number >= committed
            assert payloads(log.reader().tail()) == payloads(items)[: log.next_number]
        for entry in tmp_path.iterdir():
            entry.unlink()


def test_a_reader_sees_every_record_of_another_process(tmp_path: Path) -> None:
    with writing(tmp_path, size=1 << 14) as process:
        next_count(process)
        reader, last, seen = LogReader(tmp_path), None, 0
        while seen < 20_000:
            for item in reader.tail(last):
                assert item[3] == payload(seen), item
                seen += 1
                last = item
            infos = reader.segments()
            assert [info.number for info in infos[1:]] == [info.next_number for info in infos[:-1]]
        assert len(infos) > 5


def test_a_second_writer_is_refused(tmp_path: Path) -> None:
    with writing(tmp_path) as process:
        next_count(process)
        with pytest.raises(LogLocked, match=f"process {process.pid}"):
            open_small(tmp_path)
        next_count(process)
    with open_small(tmp_path) as log:
        with pytest.raises(LogLocked, match=f"process {os.getpid()}"):
            open_small(tmp_path)
        log.append([b"still writing"])


def test_a_file_size_limit_raises_log_full_and_loses_nothing(tmp_path: Path) -> None:
    result = subprocess.run(
        [sys.executable, "-c", FILLER, str(tmp_path)], capture_output=True, text=True, timeout=50
    )
    assert result.returncode == 0, result.stderr
    assert result.stdout.count("full:") == 3
    assert "Free some space" in result.stdout
    items = list(LogReader(tmp_path).tail())
    assert damages(items) == []
    assert payloads(items) == [b"before", b"small", *[b"x" * 1000] * 20]


def test_opening_fails_if_no_space_can_be_preallocated(tmp_path: Path) -> None:
    code = (
        "import resource, sys; from requite.storage import Log\n"
        "resource.setrlimit(resource.RLIMIT_FSIZE, (1 << 19, 1 << 19))\n"
        "Log.open(sys.argv[1], purpose=b'TEST')"
    )
    result = subprocess.run(
        [sys.executable, "-c", code, str(tmp_path)], capture_output=True, text=True, timeout=50
    )
    assert LogFull.__name__ in result.stderr
    assert sorted(entry.name for entry in tmp_path.iterdir()) == ["lock"]
    open_small(tmp_path).close()
