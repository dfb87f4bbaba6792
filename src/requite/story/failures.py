"""The newest failed requests in journals: those that ended without the reply, or were refused.

Only event rows can have a failure, and only logs of clients and brokers say what callers were told.
Each log is read backwards, segment by segment, until enough failures are found or it is too old.
The authority decides (`requite.story.rules`): a broker's failure that the client retried with
success is none. Requests that never ended have no such row; the audit finds them.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterator, Sequence
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any, Final, NamedTuple

from requite.chronicle import ENDS, Kind, WriterRole
from requite.errors import LogGone
from requite.journal.blocks import BlockType, cells_of
from requite.journal.decode import Block, SegmentDecoder
from requite.journal.event import Event
from requite.journal.folder import LogFolder, find_logs, of_each
from requite.journal.search import Findings, search
from requite.request import Status
from requite.storage import LogReader
from requite.story.telling import Story, tell
from requite.story.vocabulary import OK, OUTCOMES, REFUSED, Verdict
from requite.story.words import failure

_ROLES: Final = (WriterRole.CLIENT, WriterRole.BROKER)
_KINDS: Final = frozenset({*ENDS, Kind.REFUSED})
_FOUND_PER_SHOWN: Final = 4  # a failed request has rows in several logs, and may have succeeded


class Failure(NamedTuple):
    """A request that failed: when its caller was told, and how.

    `request_id` is None for a call that its client refused before it had an id. `verdict` is the
    audit's, which is about whether the request ended as it should, not about its success.
    """

    at: datetime
    request_id: str | None
    service: str
    error: str
    reason: str
    verdict: Verdict | None

    def record(self) -> dict[str, Any]:
        """Return the failure as a JSON-ready dict."""
        return {
            **self._asdict(),
            "at": self.at.isoformat(timespec="microseconds"),
            "verdict": self.verdict and self.verdict.value,
        }


class Failures(NamedTuple):
    """Failed requests, newest first, from `since` to `until`; `has_more`: older ones left out."""

    failures: list[Failure]
    since: datetime | None
    until: datetime | None
    has_more: bool
    findings: Findings

    def record(self) -> dict[str, Any]:
        """Return the failures as a JSON-ready dict."""
        return {
            "since": self.since and self.since.isoformat(),
            "until": self.until and self.until.isoformat(),
            "failures": [each.record() for each in self.failures],
            "has_more": self.has_more,
        }


def failures(places: Sequence[Path | str], within_s: float, count: int) -> Failures:
    """Return the newest `count` requests that failed in the last `within_s` seconds.

    Seconds are counted back from the newest event in the journals. Raises `ConfigurationError` if a
    place is not a journal.
    """
    until = search(places, ()).newest
    since = None if until is None else until - timedelta(seconds=within_s)
    if since is None:
        return Failures([], None, None, False, Findings([], [], []))
    logs = [log for place in places for log in find_logs(place) if log.role in _ROLES]
    limit = _FOUND_PER_SHOWN * count + 1
    found = of_each(logs, lambda log: list(_failed_in(log, since, limit)))
    rows = heapq.nlargest(limit, (each for part in found for each in part), key=_when)
    ids = {event.request_id for event in rows if event.request_id}
    findings = search(places, [bytes.fromhex(each) for each in ids])
    told = [_of_story(tell(findings, each)) for each in sorted(ids)]
    told += [_of_event(event, None) for event in rows if event.request_id is None]
    known = [each for each in told if each is not None and each.at >= since]
    newest = heapq.nlargest(count, known, key=lambda each: (each.at, each.request_id or ""))
    has_more = len(known) > count or len(rows) == limit
    return Failures(newest, since, until, has_more, findings)


def _when(event: Event) -> tuple[float, str, int]:
    return event.ts.timestamp() if event.ts else 0.0, event.log, event.byte_offset


def _of_story(story: Story | None) -> Failure | None:
    """Return the failure of a request, if its authority has one."""
    if story is None or story.end is None or story.end.outcome == OK:
        return None
    return _of_event(story.end, story.verdict)


def _of_event(end: Event, verdict: Verdict | None) -> Failure | None:
    if end.ts is None:
        return None
    reason = end.reason or ""
    return Failure(end.ts, end.request_id, end.service or "", failure(end), reason, verdict)


def _failed_in(log: LogFolder, since: datetime, limit: int) -> Iterator[Event]:
    """Yield the newest failures in a log, `limit` at least; those of newer segments first."""
    reader = LogReader(log.place)
    found = 0
    try:
        infos = reader.segments()
    except LogGone:
        return
    for number, info in reversed([*enumerate(infos)]):
        following = infos[number + 1] if number + 1 < len(infos) else None
        if following is not None and following.created_us < since.timestamp() * 1e6:
            return  # every row of this segment was written before the next one began
        try:
            events = heapq.nlargest(limit, _failed_in_segment(log, reader, info.number), key=_when)
        except LogGone:
            return  # removed meanwhile, as were all older ones
        recent = [event for event in events if event.ts is not None and event.ts >= since]
        yield from recent
        found += len(recent)
        if found >= limit:
            return


def _failed_in_segment(log: LogFolder, reader: LogReader, segment: int) -> Iterator[Event]:
    decoder = SegmentDecoder(log, segment)
    for item in reader.read(segment):
        block = decoder.take_in(item)
        if isinstance(block, Block) and block.header.type == BlockType.EVENTS:
            ids = _ids_of_failures(block)
            if ids:
                yield from filter(_has_failed, decoder.events(block, ids))


def _ids_of_failures(block: Block) -> frozenset[bytes]:
    """Return the ids in rows of failures, without decoding the other rows."""
    kinds, outcomes, call_ids = (
        cells_of(block.payload, name, block.header) for name in ("kind", "outcome", "call_id")
    )
    rows = zip(kinds, outcomes, call_ids, strict=True)
    return frozenset(
        call_id for kind, outcome, call_id in rows if kind in _KINDS and outcome != Status.OK
    )


def _has_failed(event: Event) -> bool:
    """Whether an event is a failure of a request: not a count of dropped messages."""
    if event.kind == REFUSED:
        return event.request_id is not None or event.error_class is not None
    return event.kind in OUTCOMES and event.outcome != OK
