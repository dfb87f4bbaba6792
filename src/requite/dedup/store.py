"""Replies on a log: performs what the engine asks of the disk, in a thread beside the event loop.

What is asked for in one turn of the loop, and while the disk is busy, is written and synced at once
(`requite.storage.GroupCommit`).
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from os import PathLike
from typing import Any, Final

from requite.dedup.inputs import Discard, Found
from requite.dedup.policy import DedupPolicy
from requite.dedup.records import decode_head
from requite.engine import Input, Load, Loaded, LoadFailed, Store, Stored, StoreFailed
from requite.errors import LocalViolation, LogCorrupt, StorageError
from requite.storage import GroupCommit, Log, LogReader, LogSettings, Position, Record

PURPOSE: Final = b"DEDU"
_SEGMENTS: Final = 8  # of which the log has so many when it is full
_SEGMENT_SIZE_MIN: Final = 1 << 20
_SEGMENT_SIZE_MAX: Final = 64 << 20

_log = logging.getLogger("requite.worker")

Inputs = list[Input]


class LogStore:
    """A log of replies, opened. `found` are its records; use `start` on the loop that it serves."""

    found: list[Found]

    def __init__(self, directory: str | PathLike[str], policy: DedupPolicy) -> None:
        """Open the log, or make it; for a thread, since that may take a while.

        Raises `StorageError`: somebody else writes it, it is not such a log, it cannot be written.
        """
        self._log = Log.open(directory, purpose=PURPOSE, settings=_settings(policy))
        try:
            self.found = read_log(self._log)
        except BaseException:
            self._log.close()
            raise
        self._group: GroupCommit[Any] = GroupCommit(self._log)
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="requite-dedup")
        self._loads: list[Load] = []
        self._discards: list[int] = []
        self._work: Future[Inputs] | None = None
        self._planned = False
        self._idle = asyncio.Event()
        self._idle.set()

    def start(self, tell: Callable[[Inputs], None]) -> None:
        """Serve the running loop: `tell` takes what has come of effects, as inputs."""
        self._tell = tell
        self._loop = asyncio.get_running_loop()

    def perform(self, effect: Store | Load | Discard) -> None:
        """Do what an engine asks for, soon."""
        if isinstance(effect, Store):
            self._group.add(effect.records, effect.ticket)
        elif isinstance(effect, Load):
            self._loads.append(effect)
        else:
            self._discards.append(effect.segment)
        self._idle.clear()
        if self._work is None and not self._planned:
            self._planned = True
            self._loop.call_soon(self._begin)

    async def close(self) -> None:
        """Do what has been asked for, and let go of the log."""
        await self._idle.wait()
        try:
            await self._loop.run_in_executor(self._thread, self._log.close)
        except StorageError as error:
            _log.warning("the log of replies was not closed in good order: %s", error)
        self._thread.shutdown(wait=False)

    # --- on the loop ------------------------------------------------------------------------------
    def _begin(self) -> None:
        self._planned = False
        loads, self._loads = self._loads, []
        discards, self._discards = self._discards, []
        self._work = self._thread.submit(self._do, loads, discards)
        self._work.add_done_callback(lambda _work: self._loop.call_soon_threadsafe(self._done))

    def _done(self) -> None:
        assert self._work is not None
        inputs = self._work.result()
        self._work = None
        self._tell(inputs)
        if self._planned:
            return
        if self._group or self._loads or self._discards:
            self._begin()
        else:
            self._idle.set()

    # --- in the thread ----------------------------------------------------------------------------
    def _do(self, loads: Sequence[Load], discards: Sequence[int]) -> Inputs:
        inputs: Inputs = [self._load(each) for each in loads]
        is_stored = True
        for ticket, positions, error in self._group.flush():
            is_stored = is_stored and error is None
            inputs.append(
                Stored(ticket, positions) if error is None else StoreFailed(ticket, error)
            )
        for segment in discards if is_stored else ():
            self._remove(segment)  # behind the records that make it superfluous
        if discards and not is_stored:  # it may hold the only note that a handler has started
            _log.warning("segments of the log of replies stay: what replaces them is not stored")
        return inputs

    def _load(self, load: Load) -> Input:
        try:
            return Loaded(load.ticket, self._read(load.position))
        except StorageError as error:
            return LoadFailed(load.ticket, error)

    def _read(self, position: Position) -> bytes:
        try:
            return self._log.read_at(position)
        except LogCorrupt:
            return self._log.reader().mend_at(position)

    def _remove(self, segment: int) -> None:
        try:
            self._log.remove(segment)
        except (StorageError, LocalViolation) as error:  # one whose header is damaged, perhaps
            _log.warning("a segment of the log of replies stays: %s", error)


def read_log(log: Log) -> list[Found]:
    """Read all records, also those of which a single bit has turned round; say which cannot be
    read, and go on.

    Raises `StorageError` where there are records of a newer version, or the disk fails.
    """
    found = []
    for item in _mended(log.reader()):
        try:
            record = decode_head(bytes(item.payload))
        except LogCorrupt as error:
            _report(f"record {item.number}: {error}")
        else:
            found.append(Found(record, item.position, len(item.payload)))
    return found


def _mended(reader: LogReader) -> Iterator[Record]:
    """Yield what can be read, or mended, and report the rest."""
    for item in reader.tail():
        if isinstance(item, Record):
            yield item
            continue
        where = f"segment {item.segment} at {item.offset}: {item.reason}"
        mended = reader.mend(item)
        if mended is None:
            _report(where)
        else:
            _log.warning("the log of replies was damaged, and is mended: %s", where)
            yield from mended


def _settings(policy: DedupPolicy) -> LogSettings:
    size = min(max(policy.bytes_max // _SEGMENTS, _SEGMENT_SIZE_MIN), _SEGMENT_SIZE_MAX)
    return LogSettings(segment_size_bytes=size)


def _report(what: str) -> None:
    _log.error("the log of replies is damaged; what was there may run a second time: %s", what)
