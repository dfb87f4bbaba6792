"""Restore the table of keys from the records of a log, when the engine starts."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from requite.dedup.entries import Entry, State
from requite.dedup.inputs import Found
from requite.dedup.keeping import Keeping
from requite.dedup.policy import DedupPolicy
from requite.dedup.records import Kind

UNKEPT: Final = "the request has run, and its reply is not stored: it was too large, or was erased"
IN_DOUBT: Final = (
    "the request may have run: its handler had started when the process ended; check its effects"
    " before you call again with another key"
)


def recover(
    found: Iterable[Found], keeping: Keeping, policy: DedupPolicy, epoch_s: float, now: float
) -> list[Entry]:
    """Restore entries from the records of a log, in their order; the last record of a key counts.

    Return the entries whose requests were running when the process ended. They are in doubt from
    now on, which is to be stored: otherwise their windows would begin again at each start.
    """
    last: dict[bytes, Found] = {}
    for each in found:
        keeping.segments.grow(each.position.segment, each.size)
        last.pop(each.record.key, None)
        if each.record.kind is not Kind.DROPPED:
            last[each.record.key] = each
    interrupted = []
    # Ended ones first: the windows of the others begin now.
    for each in sorted(last.values(), key=_begun_last):
        record = each.record
        was_running = record.kind is Kind.BEGUN  # it may have run until just now
        at = now if was_running else min(now, record.at_us / 1e6 - epoch_s)
        if at <= now - policy.window_s or (_is_in_doubt(each) and policy.in_doubt == "run"):
            continue
        entry = _entry_of(each, at)
        state = State.IN_DOUBT if _is_in_doubt(each) else State.KEPT
        keeping.entries.settle(entry, state, at)
        keeping.segments.move(entry, each.position.segment, each.size)
        if was_running:
            interrupted.append(entry)
    return interrupted


def _entry_of(found: Found, at: float) -> Entry:
    record, position, _ = found
    entry = Entry(record.key, record.digest, at)
    if record.kind is Kind.ENDED:
        entry.position = position
    else:
        entry.reason = UNKEPT if record.kind is Kind.UNKEPT else IN_DOUBT
    return entry


def _is_in_doubt(found: Found) -> bool:
    return found.record.kind not in (Kind.ENDED, Kind.UNKEPT)


def _begun_last(found: Found) -> tuple[bool, int]:
    return found.record.kind is Kind.BEGUN, found.record.at_us
