"""Titanic's store: performs `Store` and `Load` on a log, and keeps the log small.

    store = open_store("requests")              # or open_memory()
    engine = TitanicEngine(..., recovered=store.recovered)
    store.start(lambda inputs: loop.call_soon_threadsafe(feed, inputs))
    store.submit(effect)                        # a Store or a Load; from any thread
    store.close()

A thread does the work: all effects submitted since its last commit share one write and one sync,
and so do those that follow at once (`gathering`). It calls `done` with a list of `Stored`,
`StoreFailed`, `Loaded` and `LoadFailed`. Without `start`, `work()` does the same in the caller's
thread, without waiting (the simulator).

The folder is a log (docs/protocols/log-format.md) whose records are those of
docs/protocols/titanic-log.md.
"""

from __future__ import annotations

import logging
import shutil
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from os import PathLike
from pathlib import Path
from queue import Empty, SimpleQueue
from threading import Thread
from typing import Any, Final, NamedTuple, Self

from requite.engine import Input, Load, Loaded, LoadFailed, Stored, StoreFailed
from requite.engine import Store as StoreEffect
from requite.errors import ConfigurationError, LogCorrupt, LogFailed, LogFull, StorageError
from requite.protocols.titanic.replication import pack
from requite.protocols.titanic.requests import Recovered
from requite.protocols.titanic.tickets import Since
from requite.storage import Log, LogSettings, MemoryLog, Position, Record
from requite.storage.cipher import Cipher, read_key_file
from requite.storage.files import Folder
from requite.storage.layout import SUFFIX, record_size
from requite.storage.private import warn_of_access
from requite.titanic.bound import SEGMENTS_MIN, Bound
from requite.titanic.compaction import Compaction
from requite.titanic.gathering import Gathering
from requite.titanic.recovery import StoreReport, Survey
from requite.titanic.tail import Tail

PURPOSE: Final = b"TITN"
_MIB: Final = 1024 * 1024
_SEGMENT_SIZE: Final = 64 * _MIB
_SEGMENT_MIN: Final = _MIB
DISK_BYTES_LEAST: Final = SEGMENTS_MIN * _SEGMENT_MIN
"""The minimum for `StoreSettings.bounded`, whose segments would be too small below it."""
_SEGMENTS: Final = 8  # minimum of a bounded store
_IDLE_S: Final = 1.0  # how often an idle store checks for segments to compact
_log: Final = logging.getLogger("requite.titanic")


def wall_clock_us() -> int:
    """Return microseconds since 1970."""
    return time.time_ns() // 1000


@dataclass(frozen=True, slots=True, kw_only=True)
class StoreSettings:
    """Settings of a store.

    - `disk_bytes_max`: maximum bytes on the disk. New requests are refused earlier: three segments
      are reserved for replies, for closing requests, and for compaction. None: the free space of
      the disk when the store is opened.
    - `segment_size_bytes`: size of each file of the log; it is preallocated.
    - `compact_below`: segments with a smaller share of live bytes are compacted.
    - `replica_lag_bytes_max`: bytes that compaction retains for an unreachable replica; a replica
      that lacks more gets a full copy.
    - `sync`: False never waits for the disk: acknowledged requests survive the process, but not a
      power cut.
    """

    disk_bytes_max: int | None = None
    segment_size_bytes: int = _SEGMENT_SIZE
    compact_below: float = 0.5
    replica_lag_bytes_max: int = 1024 * _MIB
    sync: bool = True

    def __post_init__(self) -> None:
        if not 0 <= self.compact_below <= 1:
            raise ConfigurationError(
                f"compact_below must be between 0 and 1, not {self.compact_below}"
            )
        least = SEGMENTS_MIN * self.segment_size_bytes
        if self.disk_bytes_max is not None and self.disk_bytes_max < least:
            raise ConfigurationError(
                f"disk_bytes_max must be at least five segments ({least} bytes), not "
                f"{self.disk_bytes_max}; reduce segment_size_bytes"
            )

    def bounded(self, size_bytes: int) -> StoreSettings:
        """Return a copy with a bound, and segments small enough for it."""
        segment = min(self.segment_size_bytes, max(_SEGMENT_MIN, size_bytes // _SEGMENTS))
        return replace(self, disk_bytes_max=size_bytes, segment_size_bytes=segment)

    @property
    def log_settings(self) -> LogSettings:
        """The settings of the log."""
        return LogSettings(segment_size_bytes=self.segment_size_bytes, sync=self.sync)


class StoreView(NamedTuple):
    """Figures of a store: bytes on the disk and in live records, segments, commits, records, bytes
    moved and segments removed by compaction, damaged and corrected places, and segments that must
    still be rewritten because of an erasure or another key."""

    disk_bytes: int
    live_bytes: int
    segments: int
    commits: int
    records: int
    moved_bytes: int
    removed_segments: int
    damaged: int
    mended: int = 0
    rewriting: int = 0


@dataclass(slots=True)
class _Taken:
    """The effects of one commit."""

    stores: list[StoreEffect] = field(default_factory=list)
    loads: list[Load] = field(default_factory=list)


def open_store(
    directory: str | PathLike[str],
    settings: StoreSettings | None = None,
    *,
    now_us: Callable[[], int] = wall_clock_us,
    log_id: bytes | None = None,
    key_file: str | PathLike[str] | None = None,
) -> Store:
    """Open the store in a folder, or create one; with `log_id` only the store with this log.

    `key_file` has the keys to encrypt the store with (`requite.storage.cipher.read_key_file`).
    Raises `LogLocked` if another Titanic uses the folder, `LogMismatch` if it has other content,
    was written by a newer requite, or is encrypted with another key, `LogFailed` if it cannot be
    written, and `ConfigurationError` for an invalid key file.
    """
    settings = _within_the_disk(Path(directory), settings or StoreSettings())
    cipher = None if key_file is None else Cipher(read_key_file(key_file), PURPOSE)
    log = Log.open(
        directory, purpose=PURPOSE, settings=settings.log_settings, log_id=log_id, cipher=cipher
    )
    store = Store.on(log, settings, now_us)
    warn_of_access(Path(directory), _log)
    return store


def _within_the_disk(folder: Path, settings: StoreSettings) -> StoreSettings:
    """Bound an unbounded store by the free space of its disk: replies to accepted requests need
    space, and compaction takes space before it frees some."""
    if settings.disk_bytes_max is not None:
        return settings
    there = next(path for path in (folder, *folder.absolute().parents) if path.exists())
    taken = sum(file.stat().st_size for file in folder.glob(f"*{SUFFIX}"))
    room = taken + shutil.disk_usage(there).free
    return settings.bounded(room) if room >= DISK_BYTES_LEAST else settings


def open_memory(
    settings: StoreSettings | None = None,
    *,
    folder: Folder | None = None,
    now_us: Callable[[], int] = wall_clock_us,
) -> Store:
    """Return a store in memory, which does not survive the process; `folder` has its files (for
    tests)."""
    settings = settings or StoreSettings()
    if folder is not None:
        return Store.on(Log(folder, PURPOSE, settings.log_settings), settings, now_us)
    return Store.on(MemoryLog(PURPOSE, settings.log_settings), settings, now_us)


class Store:
    """A store; see the module. `recovered` is for the engine, and empty once the thread has been
    started; `report` lists damage."""

    recovered: Recovered
    report: StoreReport

    def __init__(self, log: Log, settings: StoreSettings, now_us: Callable[[], int]) -> None:
        """Use `open_store`, `open_memory` or `on`."""
        survey = Survey(log)
        self.settings = settings
        self.recovered = survey.recovered(now_us())
        self.report = survey.report
        self._log = log
        self._index = survey.index
        self._now_us = now_us
        self._compaction = Compaction(log, survey.index, settings.replica_lag_bytes_max)
        self._tail = Tail(log, survey.complete_from)
        # Not a `Condition`: its Python code, during which the event loop waits for the interpreter,
        # takes a tenth of the processor time of a lone submission.
        self._waiting: SimpleQueue[StoreEffect | Load | None] = SimpleQueue()  # None: the end
        self._thread: Thread | None = None
        self._commits = self._records = 0
        self._gathering = Gathering()
        self._no_room = False  # for compaction, until the next successful commit
        self._write_again(survey.mended)
        size = settings.segment_size_bytes
        self._bound = Bound(
            log, survey.index, settings.disk_bytes_max, size, settings.compact_below
        )

    @classmethod
    def on(cls, log: Log, settings: StoreSettings, now_us: Callable[[], int]) -> Self:
        """Return the store of a log, which is closed if that fails. Raises `StorageError`."""
        try:
            return cls(log, settings, now_us)
        except StorageError as error:
            log.close()
            log.recovered.add_to(error)
            raise
        except BaseException:
            log.close()
            raise

    def _write_again(self, mended: Sequence[Record]) -> None:
        """Rewrite corrected records; the damaged originals are removed with their segments."""
        try:
            self._compaction.write_again(mended)
        except LogFull as error:
            _log.warning("cannot rewrite repaired records: %s", error)

    def write_again_from(self, number: int) -> None:
        """Rewrite the live records from that number on; call before `start`.

        Raises `StorageError` if that fails.
        """
        reader, records = self._log.reader(), list[Record]()
        for sealed in self._log.sealed:
            if sealed.number + sealed.size > number:  # a record has at least one byte
                items = (one for one in reader.read(sealed.number) if isinstance(one, Record))
                records += [record for record in items if record.number >= number]
        self._compaction.write_again(records)

    # --- from any thread --------------------------------------------------------------------------
    def start(self, done: Callable[[list[Input]], object]) -> None:
        """Start the thread; it calls `done` with the results."""
        self.recovered = Recovered()  # of a waiting request, it is an eighth of the memory
        self._thread = Thread(target=self._run, args=(done,), name="titanic-store", daemon=True)
        self._thread.start()

    def submit(self, effect: StoreEffect | Load) -> None:
        """Submit an effect."""
        self._waiting.put(effect)

    def close(self) -> None:
        """Finish submitted effects, and close the log; idempotent."""
        if self._thread is not None:
            self._waiting.put(None)
            self._thread.join()
            self._thread = None
        self._log.close()

    @property
    def safe_to(self) -> int:
        """The number after the last synced record."""
        return max(self._tail.end, self._compaction.synced_to)

    @property
    def log_id(self) -> bytes:
        """16 random bytes that identify this store."""
        return self._log.log_id

    @property
    def next_number(self) -> int:
        """The number of the next record to be written."""
        return self._log.next_number

    def view(self) -> StoreView:
        """Return figures; those of the store's thread may be slightly outdated."""
        return StoreView(
            self._log.disk_bytes,
            sum(list(self._index.live.values())),
            len(self._log.sealed) + 1,
            self._commits,
            self._records,
            self._compaction.moved_bytes,
            self._compaction.removed,
            len(self.report.damaged) + len(self._compaction.damaged),
            len(self.report.mended) + len(self._compaction.mended),
            len(self._compaction.to_rewrite()) + self._is_active_to_erase,
        )

    # --- the work ---------------------------------------------------------------------------------
    def work(self) -> list[Input]:
        """Perform submitted effects and a step of compaction; return the results."""
        return self._do(self._take(0.0))

    def _take(self, wait_s: float) -> list[StoreEffect | Load | None]:
        """Wait up to `wait_s` for an effect; return all that are queued."""
        waiting: list[StoreEffect | Load | None] = []
        try:
            waiting.append(self._waiting.get(timeout=wait_s))
            while True:
                waiting.append(self._waiting.get_nowait())
        except Empty:
            return waiting

    def _gather(self) -> list[StoreEffect | Load | None]:
        """Wait for effects, and for those that are expected to follow soon."""
        waiting, gathering = self._take(0.0), self._gathering
        gathering.expect(_records_of(waiting))
        if self._is_compacting:
            return waiting
        waiting = waiting or self._take(_IDLE_S)
        count = _records_of(waiting)
        now = time.perf_counter()
        patience_s = gathering.patience_s(count, now)
        if not patience_s:
            return waiting
        until, more = now + patience_s, waiting
        # A `Load` or the end must not wait.
        while all(isinstance(effect, StoreEffect) for effect in more):
            left_s = until - time.perf_counter()
            if gathering.is_enough(count) or left_s <= 0 or not (more := self._take(left_s)):
                gathering.waited(count)
                break
            waiting += more
            count += _records_of(more)
        return waiting

    def _do(self, waiting: Sequence[StoreEffect | Load | None]) -> list[Input]:
        taken = _Taken()
        for effect in waiting:
            if isinstance(effect, StoreEffect):
                taken.stores.append(effect)
            elif effect is not None:
                taken.loads.append(effect)
        done = self._store(taken.stores) if taken.stores else []
        done += [self.load(load) for load in taken.loads]
        self._maybe_compact()
        return done

    def _run(self, done: Callable[[list[Input]], object]) -> None:
        is_over = False
        while not is_over:
            waiting = self._gather()
            is_over = None in waiting
            try:
                inputs = self._do(waiting)
            except Exception as bug:  # a dead thread would leave all callers waiting
                _log.exception("the store has failed")
                error = LogFailed(f"the store has failed: {type(bug).__name__}: {bug}")
                inputs = [_failed(effect, error) for effect in waiting if effect is not None]
                self._no_room = True
            if inputs:
                done(inputs)

    # --- storing ----------------------------------------------------------------------------------
    def _store(self, stores: Sequence[StoreEffect]) -> list[Input]:
        """Commit all effects that fit, in order, with one sync."""
        done: list[Input] = []
        group: list[StoreEffect] = []
        payloads: list[bytes] = []
        size, bound = 0, self._bound
        for effect in stores:
            if bound.limit is not None:
                with_it = size + sum(map(record_size, map(len, effect.records)))
                refused = bound.refusal(effect.records, with_it, len(payloads))
                if refused is not None:
                    done.append(StoreFailed(effect.ticket, refused))
                    continue
                size = with_it
            group.append(effect)
            payloads += effect.records
        if not group:
            return done
        try:
            done += self._commit(group, payloads)
        except LogFull as error:
            self._compaction.pinned_from = None  # stop retaining records for the replica
            done += self._one_by_one(group, error)
        except StorageError as error:
            done += [StoreFailed(effect.ticket, error) for effect in group]
        return done

    def _commit(self, group: Sequence[StoreEffect], payloads: Sequence[bytes]) -> list[Input]:
        began_at = time.perf_counter()
        positions = self._log.commit(payloads)
        self._gathering.committed(len(payloads), began_at, time.perf_counter())
        self._tail.end = self._log.next_number
        self._commits += 1
        self._records += len(payloads)
        self._no_room = False
        locations = self._index.add_all(payloads, positions)
        if len(group) == 1:
            return [Stored(group[0].ticket, locations)]
        rest = iter(locations)
        return [Stored(one.ticket, [next(rest) for _ in one.records]) for one in group]

    def _one_by_one(self, group: Sequence[StoreEffect], error: LogFull) -> list[Input]:
        """Commit effects one by one after `LogFull`: smaller ones may fit."""
        if len(group) == 1:
            return [StoreFailed(group[0].ticket, error)]
        done: list[Input] = []
        for effect in group:
            try:
                done += self._commit([effect], effect.records)
            except StorageError as failed:
                done.append(StoreFailed(effect.ticket, failed))
        return done

    # --- loading ----------------------------------------------------------------------------------
    def load(self, load: Load) -> Input:
        """Perform a `Load` in the caller's thread; possible even after `close`."""
        location: Any = load.position
        if location is None:  # found damaged when the log was reopened
            return LoadFailed(load.ticket, LogCorrupt("the record is damaged"))
        try:
            if isinstance(location, Since):
                return Loaded(load.ticket, self._read_since(location))
            return Loaded(load.ticket, self._read(location.position))
        except StorageError as error:
            return LoadFailed(load.ticket, error)

    def _read(self, position: Position) -> bytes:
        try:
            return self._log.read_at(position)
        except LogCorrupt:
            return self._log.reader().mend_at(position)

    def _read_since(self, since: Since) -> bytes:
        """Read a batch for a replica; compaction retains what it lacks while there is room."""
        self._tail.complete_from = max(self._tail.complete_from, self._compaction.removed_to)
        self._tail.end = max(self._tail.end, self._compaction.synced_to)
        batch = self._tail.read(since)
        is_scarce = self._bound.compact_below() > self.settings.compact_below
        self._compaction.pinned_from = None if is_scarce else batch.since
        return pack(batch)

    # --- compaction -------------------------------------------------------------------------------
    @property
    def _is_compacting(self) -> bool:
        return self._compaction.is_under_way and not self._no_room

    @property
    def _is_active_to_erase(self) -> bool:
        """Whether the active segment has records that must be removed because of an erasure."""
        return self._log.segment <= self._index.erase_to

    def _maybe_compact(self) -> None:
        """Do a step of compaction if it is worthwhile; near the bound, smaller gains suffice."""
        if self._no_room:
            return
        self._index.expire_keys(self._now_us())
        if self._bound.is_pressed:
            self._compaction.pinned_from = None
        try:
            if self._is_active_to_erase:
                self._log.rotate()
            if not self._compaction.step(self._bound.compact_below()):
                self._bound.is_pressed = False
        except StorageError:  # the next commit reports it
            self._no_room = True


def _records_of(waiting: Sequence[StoreEffect | Load | None]) -> int:
    return sum(len(effect.records) for effect in waiting if isinstance(effect, StoreEffect))


def _failed(effect: StoreEffect | Load, error: StorageError) -> Input:
    if isinstance(effect, StoreEffect):
        return StoreFailed(effect.ticket, error)
    return LoadFailed(effect.ticket, error)
