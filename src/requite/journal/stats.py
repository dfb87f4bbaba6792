"""Count the content of a journal, log by log, without decoding each row to events."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from math import isfinite
from pathlib import Path
from typing import Any, Final

from requite.chronicle import Kind
from requite.errors import LogGone
from requite.journal.blocks import (
    SEQS_PER_ROW,
    BlockType,
    Header,
    cells_of,
    flaw_of,
    owner_mismatch,
    parse_header,
    read_opened,
)
from requite.journal.event import from_us
from requite.journal.folder import LogFolder, find_logs, missing_logs
from requite.journal.meaning import (
    INSTANT_OUT_OF_RANGE,
    KIND_NAMES,
    ROLE_NAMES,
    STEPS,
    kind_name,
    unknown_kind,
    wall_us,
)
from requite.storage import Damage, LogReader, SegmentInfo
from requite.storage.ending import CUT

_INSTANTS: Final = ("first_at", "second_at", "third_at")


@dataclass(slots=True)
class LogStats:
    """The content of one log.

    `events` counts events by kind. `dropped` rows were lost before they could be written; `missing`
    event numbers were written and cannot be read (a span has four), for example because of damage.
    `flaws` counts undecodable items by reason. `first_seq` is above 0 if retention has removed the
    beginning. `state` is one of:

    - `closed`: the writer has closed it.
    - `open`: it is being written, its writer was killed, or it is a recent copy of such a log.
    - `incomplete`: the writer ended without recording the end; its last rows are missing.
    - `torn`: its writer was killed, or the machine stopped, during a write.
    - `cut`: the end of the file is missing, with its events.
    - `missing`: it began, and does not exist.
    """

    log: LogFolder
    facts: dict[str, Any] = field(default_factory=dict)
    events: Counter[str] = field(default_factory=Counter)
    flaws: Counter[str] = field(default_factory=Counter)
    first_us: int | None = None
    last_us: int | None = None
    first_seq: int | None = None
    next_seq: int = 0
    missing: int = 0
    dropped: int = 0
    bytes: int = 0
    segments: int = 0
    state: str = "open"
    _last_kind: int | None = None
    _is_stranger: bool = False

    @property
    def first(self) -> datetime | None:
        """The time of the earliest event."""
        return from_us(self.first_us)

    @property
    def last(self) -> datetime | None:
        """The time of the latest event."""
        return from_us(self.last_us)

    def record(self) -> dict[str, Any]:
        """Return the figures as a JSON-ready dict."""
        first, last = self.first, self.last
        return {
            "log": self.log.log,
            "role": ROLE_NAMES[self.log.role],
            "name": self.log.name,
            "pid": self.facts.get("pid"),
            "version": self.facts.get("version"),
            "started": self.facts.get("started"),
            "first": first and first.isoformat(timespec="microseconds"),
            "last": last and last.isoformat(timespec="microseconds"),
            "events": dict(self.events),
            "bytes": self.bytes,
            "segments": self.segments,
            "first_seq": self.first_seq,
            "next_seq": self.next_seq,
            "dropped": self.dropped,
            "missing": self.missing,
            "flaws": dict(self.flaws),
            "state": self.state,
        }

    # --- counting -------------------------------------------------------------------------------
    def add(self, payload: memoryview) -> None:
        """Count the content of a block."""
        header = parse_header(payload)
        flaw = flaw_of(payload)
        if header is None or flaw:
            self.flaws[flaw] += 1
            return
        if header.type == BlockType.OPENED:  # the first block of a segment
            stranger = owner_mismatch(payload, ROLE_NAMES[self.log.role], self.log.name)
            self._is_stranger = bool(stranger)
            if stranger:
                self.flaws[stranger] += 1
        if self._is_stranger:
            return
        self._number(header)
        self._last_kind = None
        if header.type == BlockType.OPENED:
            self.facts = self.facts or read_opened(payload)
        elif header.type == BlockType.SPANS:
            self._add_spans(payload, header)
        elif header.type == BlockType.EVENTS:
            self._add_event_rows(payload, header)

    def _number(self, header: Header) -> None:
        if self.first_seq is None:
            self.first_seq = header.first_seq
        elif header.first_seq > self.next_seq:
            self.missing += header.first_seq - self.next_seq
        self.next_seq = header.first_seq + SEQS_PER_ROW[header.type] * header.rows

    def _add_spans(self, payload: memoryview, header: Header) -> None:
        first, second, third = (cells_of(payload, name, header) for name in _INSTANTS)
        queued = [at for at, later in zip(first, second, strict=True) if later > at]
        instants = {"first_at": first, "second_at": second, "third_at": third}
        for step in STEPS[self.log.role]:
            happened = queued if step.kind is Kind.QUEUED else instants[step.at]
            if happened:
                self.events[KIND_NAMES[step.kind]] += len(happened)
                self._span(happened, header)

    def _add_event_rows(self, payload: memoryview, header: Header) -> None:
        kinds = cells_of(payload, "kind", header)
        for number, count in Counter(kinds).items():
            self.events[kind_name(number)] += count
            if number not in KIND_NAMES:
                self.flaws[unknown_kind(number)] += count
        self._last_kind = kinds[-1] if kinds else None
        self._span(cells_of(payload, "at", header), header)
        values = zip(kinds, cells_of(payload, "value", header), strict=True)
        self.dropped += sum(
            int(value) for kind, value in values if kind == Kind.DROPPED and isfinite(value)
        )

    def end(self, infos: Sequence[SegmentInfo], *, may_grow: bool) -> None:
        """Record how the log ends, from its segments."""
        last = infos[-1] if infos else None
        self.segments = len(infos)
        if last is not None and last.torn:
            self.state = "cut" if last.torn == CUT else "torn"
        elif last is not None and last.sealed and self._last_kind == Kind.CLOSED:
            self.state = "closed"
        elif (last is None or last.sealed) and not may_grow:
            self.state = "incomplete"

    def _span(self, instants: Iterable[float], header: Header) -> None:
        walls = [wall_us(at, header.clock_offset_us) for at in instants]
        times = [wall for wall in walls if wall is not None]
        if len(times) < len(walls):
            self.flaws[INSTANT_OUT_OF_RANGE] += len(walls) - len(times)
        if times:
            self.first_us = min(times) if self.first_us is None else min(self.first_us, *times)
            self.last_us = max(times) if self.last_us is None else max(self.last_us, *times)


def stats(directory: Path | str) -> Iterator[LogStats]:
    """Yield the content of each log of a journal, then the missing logs.

    Raises `ConfigurationError` if the folder is no journal.
    """
    for log in find_logs(directory):
        yield _stats_of(log)
    for log in missing_logs(directory):
        yield LogStats(log, state="missing")


def _stats_of(log: LogFolder) -> LogStats:
    found = LogStats(log)
    reader = LogReader(log.place)
    try:
        infos = reader.segments()
        for info in infos:
            found.bytes += info.written_bytes
            for item in reader.read(info.number):
                if isinstance(item, Damage):
                    found.flaws[item.reason] += 1
                else:
                    found.add(item.payload)
        found.end(infos, may_grow=reader.may_grow())
    except LogGone:  # removed during the reading: the counts so far remain
        pass
    return found
