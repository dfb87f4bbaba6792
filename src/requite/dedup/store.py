"""The log of replies: performs `Store`, `Load` and `Discard` in a thread.

Effects of one turn of the loop, and those that arrive while the disk is busy, share one write and
one sync (`requite.storage.GroupCommit`).
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from functools import partial
from os import PathLike
from pathlib import Path
from typing import Any, Final

from requite.dedup.inputs import Discard, Found
from requite.dedup.policy import DedupPolicy
from requite.dedup.records import decode_head
from requite.engine import Input, Load, Loaded, LoadFailed, Store, Stored, StoreFailed
from requite.errors import LocalViolation, LogCorrupt, StorageError
from requite.storage import GroupCommit, Log, LogReader, LogSettings, Position, Record
from requite.storage.cipher import Cipher, read_key_file, require_plain
from requite.storage.private import warn_of_access

PURPOSE: Final = b"DEDU"
_SEGMENTS: Final = 8  # of a full log
_SEGMENT_SIZE_MIN: Final = 1 << 20
_SEGMENT_SIZE_MAX: Final = 64 << 20

_log = logging.getLogger("requite.worker")

Inputs = list[Input]


class ReplyLog:
    """An open log of replies, without a thread. `found` are its records.

    Raises `StorageError` if the records cannot be read; the caller still closes the log.
    """

    def __init__(self, log: Log) -> None:
        self.found: list[Found] = read_log(log)
        self._log = log
        self._group: GroupCommit[Any] = GroupCommit(log)
        self._loads: list[Load] = []
        self._discards: list[int] = []

    @property
    def is_idle(self) -> bool:
        """Whether no effect waits."""
        return not (self._group or self._loads or self._discards)

    def add(self, effect: Store | Load | Discard) -> None:
        """Add an effect to those that wait."""
        if isinstance(effect, Store):
            self._group.add(effect.records, effect.ticket)
        elif isinstance(effect, Load):
            self._loads.append(effect)
        else:
            self._discards.append(effect.segment)

    def take(self) -> Callable[[], Inputs]:
        """Return a function that performs the effects that wait, and returns the results; it may
        block. Only `Store`s that are added before it is called may be among them."""
        loads, self._loads = self._loads, []
        discards, self._discards = self._discards, []
        return partial(self._do, loads, discards)

    def close(self) -> None:
        """Close the log; it may block. Raises `StorageError`."""
        self._log.close()

    def _do(self, loads: Sequence[Load], discards: Sequence[int]) -> Inputs:
        inputs: Inputs = [self._load(each) for each in loads]
        is_stored = True
        for ticket, positions, error in self._group.flush():
            is_stored = is_stored and error is None
            inputs.append(
                Stored(ticket, positions) if error is None else StoreFailed(ticket, error)
            )
        for segment in discards if is_stored else ():
            self._remove(segment)  # after the records that replace its own
        if discards and not is_stored:  # a segment may hold the only BEGUN of a running handler
            _log.warning(
                "old segments of the log of replies were not removed, because their"
                " replacement could not be stored"
            )
        return inputs

    def _load(self, load: Load) -> Input:
        try:
            return Loaded(load.ticket, read_payload(self._log, load.position))
        except StorageError as error:
            return LoadFailed(load.ticket, error)

    def _remove(self, segment: int) -> None:
        try:
            self._log.remove(segment)
        except (StorageError, LocalViolation) as error:  # for example a damaged header
            _log.warning("cannot remove a segment of the log of replies: %s", error)


class LogStore:
    """A log of replies, and its thread. `found` are its records; call `start` on the loop that it
    serves."""

    found: list[Found]

    def __init__(
        self,
        directory: str | PathLike[str],
        policy: DedupPolicy,
        key_file: str | PathLike[str] | None = None,
    ) -> None:
        """Open or create the log; this may take long, so call it in a thread.

        Raises `StorageError` if another process has it open, it is another kind of log, is
        encrypted with another key, or cannot be written, and `ConfigurationError` for an invalid
        key file.
        """
        log = open_log(directory, policy, key_file)
        try:
            warn_of_access(Path(directory), _log)
            self._log = ReplyLog(log)
        except BaseException:
            log.close()
            raise
        self.found = self._log.found
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="requite-dedup")
        self._work: Future[Inputs] | None = None
        self._planned = False
        self._idle = asyncio.Event()
        self._idle.set()

    def start(self, tell: Callable[[Inputs], None]) -> None:
        """Serve the running loop; `tell` takes the results of effects, as inputs."""
        self._tell = tell
        self._loop = asyncio.get_running_loop()

    def perform(self, effect: Store | Load | Discard) -> None:
        """Schedule an effect."""
        self._log.add(effect)
        self._idle.clear()
        if self._work is None and not self._planned:
            self._planned = True
            self._loop.call_soon(self._begin)

    async def close(self) -> None:
        """Perform all scheduled effects, then close the log."""
        await self._idle.wait()
        try:
            await self._loop.run_in_executor(self._thread, self._log.close)
        except StorageError as error:
            _log.warning("cannot close the log of replies: %s", error)
        self._thread.shutdown(wait=False)

    def _begin(self) -> None:
        self._planned = False
        self._work = self._thread.submit(self._log.take())
        self._work.add_done_callback(lambda _work: self._loop.call_soon_threadsafe(self._done))

    def _done(self) -> None:
        assert self._work is not None
        inputs = self._work.result()
        self._work = None
        self._tell(inputs)
        if self._planned:
            return
        if self._log.is_idle:
            self._idle.set()
        else:
            self._begin()


def read_payload(log: Log, position: Position) -> bytes:
    """Return the payload of a record; correct a single flipped bit. Raises `StorageError`."""
    try:
        return log.read_at(position)
    except LogCorrupt:
        return log.reader().mend_at(position)


def read_log(log: Log) -> list[Found]:
    """Read all records; correct single flipped bits, and report unreadable records.

    Raises `StorageError` if there are records of a newer version, or the disk fails.
    """
    found = []
    for item in _mended(log.reader()):
        require_plain(item.payload, "key_file, --key-file")
        try:
            record = decode_head(bytes(item.payload))
        except LogCorrupt as error:
            _report(f"record {item.number}: {error}")
        else:
            found.append(Found(record, item.position, len(item.payload)))
    return found


def _mended(reader: LogReader) -> Iterator[Record]:
    """Yield records that can be read or corrected, and report the rest."""
    for item in reader.tail():
        if isinstance(item, Record):
            yield item
            continue
        where = f"segment {item.segment} at {item.offset}: {item.reason}"
        mended = reader.mend(item)
        if mended is None:
            _report(where)
        else:
            _log.warning("the log of replies was damaged, and has been repaired: %s", where)
            yield from mended


def open_log(
    directory: str | PathLike[str],
    policy: DedupPolicy,
    key_file: str | PathLike[str] | None = None,
) -> Log:
    """Open or create a log of replies; `key_file` has the keys to encrypt it with."""
    cipher = None if key_file is None else Cipher(read_key_file(key_file), PURPOSE)
    return Log.open(directory, purpose=PURPOSE, settings=_settings(policy), cipher=cipher)


def _settings(policy: DedupPolicy) -> LogSettings:
    size = min(max(policy.bytes_max // _SEGMENTS, _SEGMENT_SIZE_MIN), _SEGMENT_SIZE_MAX)
    return LogSettings(segment_size_bytes=size)


def _report(what: str) -> None:
    _log.error("the log of replies is damaged; a request may run a second time: %s", what)
