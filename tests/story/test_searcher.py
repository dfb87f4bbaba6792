"""The searches of a server run in another process: its answers, its indexes and its end."""

from __future__ import annotations

import asyncio
import os
import resource
import select
import signal
import subprocess
import sys
from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.spark.source.journals import LogWriter, call_id, failure, span

from requite.chronicle import EventRow, Kind
from requite.errors import StorageError
from requite.journal.search import search
from requite.story import searcher as module
from requite.story.failures import failures
from requite.story.searcher import Searcher
from requite.story.telling import record_of, tell

WAIT_S = 30.0
POLL_S = 0.01
CALLS = 60_000  # several segments of the smallest size
NAMELESS = "f" * 32


@pytest.fixture
def writer(tmp_path: Path) -> Iterator[LogWriter]:
    """The log of a broker that has several full segments, and is written further."""
    with LogWriter(tmp_path / "journal") as log:
        for first in range(0, CALLS, 1000):
            log.spans([span(number, number / 1000) for number in range(first, first + 1000)])
        log.event_rows(
            [
                EventRow(60.5, Kind.ACCEPTED, call_id(77), b"echo", size=5, value=70.0),
                failure(77, at=61.0),
            ]
        )
        assert len(log.segments()) >= 4
        yield log


@pytest.fixture
def journal(writer: LogWriter, tmp_path: Path) -> Path:
    return tmp_path / "journal"


@pytest.fixture
async def searcher(journal: Path) -> AsyncIterator[Searcher]:
    found = Searcher([journal])
    yield found
    await found.close()


def told(journal: Path, request_id: str) -> dict[str, Any]:
    """Return the story as this process tells it."""
    findings = search([journal], [bytes.fromhex(request_id)])
    return record_of(tell(findings, request_id), request_id, findings)


def indexes(journal: Path) -> int:
    return len([*journal.glob("*/.index/*.idx")])


def pid_of(searcher: Searcher) -> int:
    assert searcher._process is not None
    return searcher._process.pid


async def until(is_so: Callable[[], bool]) -> None:
    async with asyncio.timeout(WAIT_S):
        while not is_so():  # noqa: ASYNC110 - another process makes it so
            await asyncio.sleep(POLL_S)


# --- answers --------------------------------------------------------------------------------------
async def test_stories_are_those_of_the_command(searcher: Searcher, journal: Path) -> None:
    for number in (0, 77, CALLS - 1):
        request_id = call_id(number).hex()
        story = await searcher.tell(request_id)
        assert story == told(journal, request_id) | {"steps_more": 0, "events_more": 0}
        assert story["found"]
        assert story["sentences"]


async def test_an_unknown_request_is_not_found(searcher: Searcher) -> None:
    story = await searcher.tell(NAMELESS)
    assert (story["found"], len(story["logs"])) == (False, 1)


async def test_a_story_of_many_events_is_shortened(
    searcher: Searcher, journal: Path, writer: LogWriter
) -> None:
    number = CALLS + 5
    for first in range(0, 5000, 1000):
        writer.spans([span(number, at / 1000) for at in range(first, first + 1000)])
    story = await searcher.tell(call_id(number).hex())
    whole = told(journal, call_id(number).hex())
    assert story["sentences"] == whole["sentences"]
    for parts in ("steps", "events"):
        assert story[parts] == whole[parts][:500]
        assert story[f"{parts}_more"] == len(whole[parts]) - 500 > 4000


async def test_failures_are_those_of_the_command(searcher: Searcher, journal: Path) -> None:
    found = await searcher.failures(3600.0, 20)
    assert found == failures([journal], 3600.0, 20).record()
    assert [each["request_id"] for each in found["failures"]] == [call_id(77).hex()]


async def test_what_was_written_meanwhile_is_found(searcher: Searcher, writer: LogWriter) -> None:
    assert not (await searcher.tell(call_id(CALLS).hex()))["found"]
    before = len(writer.segments())
    number = CALLS
    while len(writer.segments()) == before:  # the log begins a new segment
        writer.spans([span(each, each / 1000) for each in range(number, number + 1000)])
        number += 1000
    assert (await searcher.tell(call_id(CALLS).hex()))["found"]
    assert (await searcher.tell(call_id(number - 1).hex()))["found"]


async def test_many_ask_at_a_time(searcher: Searcher) -> None:
    ids = [call_id(number).hex() for number in range(0, CALLS, CALLS // 10)]
    stories = await asyncio.gather(*map(searcher.tell, ids))
    assert [story["request_id"] for story in stories] == ids


# --- indexes --------------------------------------------------------------------------------------
async def test_full_segments_get_an_index_before_anybody_asks(
    searcher: Searcher, journal: Path, writer: LogWriter
) -> None:
    full = len(writer.segments()) - 1
    await searcher.start()
    await until(lambda: indexes(journal) == full)
    assert (await searcher.tell(call_id(0).hex()))["found"]


async def test_indexing_gives_way_to_others(searcher: Searcher) -> None:
    await searcher.start()
    own = os.getpriority(os.PRIO_PROCESS, 0)
    await until(lambda: os.getpriority(os.PRIO_PROCESS, pid_of(searcher)) == min(19, own + 10))


# --- failures -------------------------------------------------------------------------------------
async def test_a_missing_journal_is_an_error_until_it_is_there(tmp_path: Path) -> None:
    place = tmp_path / "later"
    searcher = Searcher([place])
    with pytest.raises(StorageError, match=r"cannot be searched: .*later"):
        await searcher.tell(NAMELESS)
    with LogWriter(place) as log:
        log.spans([span(1)])
        assert (await searcher.tell(call_id(1).hex()))["found"]
    await searcher.close()


async def test_a_search_whose_process_is_killed_fails_and_the_next_one_works(
    searcher: Searcher,
) -> None:
    await searcher.tell(NAMELESS)
    os.kill(pid_of(searcher), signal.SIGSTOP)
    asking = asyncio.ensure_future(searcher.tell(NAMELESS))
    await asyncio.sleep(0)
    os.kill(pid_of(searcher), signal.SIGKILL)
    with pytest.raises(StorageError, match="its process ended"):
        await asking
    assert (await searcher.tell(call_id(1).hex()))["found"]


async def test_a_search_that_takes_too_long_is_given_up(
    searcher: Searcher, monkeypatch: pytest.MonkeyPatch
) -> None:
    await searcher.tell(NAMELESS)
    os.kill(pid_of(searcher), signal.SIGSTOP)
    with monkeypatch.context() as patch:
        patch.setattr(module, "_WITHIN_S", 0.01)
        with pytest.raises(StorageError, match="given up"):
            await searcher.tell(NAMELESS)
    assert (await searcher.tell(call_id(1).hex()))["found"]


async def test_an_answer_that_nobody_awaits_is_not_that_of_the_next_search(
    searcher: Searcher,
) -> None:
    await searcher.tell(NAMELESS)
    os.kill(pid_of(searcher), signal.SIGSTOP)
    asking = asyncio.ensure_future(searcher.tell(NAMELESS))
    await asyncio.sleep(0)
    asking.cancel()
    await asyncio.wait([asking])
    assert (await searcher.tell(call_id(1).hex()))["request_id"] == call_id(1).hex()


async def test_too_many_searches_are_refused(searcher: Searcher) -> None:
    await searcher.tell(NAMELESS)
    os.kill(pid_of(searcher), signal.SIGSTOP)
    asking = [asyncio.ensure_future(searcher.tell(NAMELESS)) for _ in range(16)]
    await asyncio.sleep(0)
    with pytest.raises(StorageError, match="16 searches of the journal wait"):
        await searcher.tell(NAMELESS)
    os.kill(pid_of(searcher), signal.SIGCONT)
    assert len(await asyncio.gather(*asking)) == 16


async def test_a_closed_searcher_refuses(searcher: Searcher) -> None:
    await searcher.start()
    await searcher.close()
    with pytest.raises(StorageError, match="closed"):
        await searcher.tell(NAMELESS)


async def test_a_search_that_cannot_start_fails_and_the_next_one_works(
    searcher: Searcher, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as patch:
        patch.setattr(sys, "executable", "/nonexistent/python")
        with pytest.raises(StorageError, match=r"cannot be started: .*No such file"):
            await searcher.tell(NAMELESS)
    assert (await searcher.tell(call_id(1).hex()))["found"]


async def test_a_searcher_that_is_closed_while_it_starts_leaves_no_process(
    searcher: Searcher, monkeypatch: pytest.MonkeyPatch
) -> None:
    made: list[asyncio.subprocess.Process] = []
    make = asyncio.create_subprocess_exec

    async def make_and_close(*command: Any, **options: Any) -> asyncio.subprocess.Process:
        made.append(await make(*command, **options))
        await searcher.close()
        return made[0]

    monkeypatch.setattr(asyncio, "create_subprocess_exec", make_and_close)
    with pytest.raises(StorageError, match="closed"):
        await searcher.start()
    assert made[0].returncode == -signal.SIGKILL


async def test_files_of_the_folder_are_not_run(
    searcher: Searcher, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("json", "select", "resource"):
        (tmp_path / f"{name}.py").write_text("raise SystemExit(1)")
    monkeypatch.chdir(tmp_path)
    assert (await searcher.tell(call_id(1).hex()))["found"]


async def test_a_limit_of_memory_is_kept(searcher: Searcher) -> None:
    kind = resource.RLIMIT_AS
    before = resource.getrlimit(kind)
    limit = 3 << 30
    resource.setrlimit(kind, (limit, before[1]))
    try:
        await searcher.tell(NAMELESS)
    finally:
        resource.setrlimit(kind, before)
    assert resource.prlimit(pid_of(searcher), kind)[0] == limit


PARENT = """
import asyncio, sys
from requite.story.searcher import Searcher
async def main():
    searcher = Searcher([sys.argv[1]])
    await searcher.start()
    print(searcher._process.pid, flush=True)
    await asyncio.Event().wait()
asyncio.run(main())
"""


def test_the_process_ends_when_its_server_is_killed(journal: Path) -> None:
    command = [sys.executable, "-c", PARENT, str(journal)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as parent:
        assert parent.stdout is not None
        pidfd = os.pidfd_open(int(parent.stdout.readline()))
        try:
            parent.kill()
            assert select.select([pidfd], [], [], WAIT_S)[0] == [pidfd]
        finally:
            os.close(pidfd)
