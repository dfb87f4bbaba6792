"""Read chronicles, for tests of their consistency."""

from __future__ import annotations

from collections import Counter, defaultdict

from requite.chronicle import ENDS, NO_CALL, Chronicle, EventRow, Kind, Span


def by_request(chronicle: Chronicle) -> dict[bytes, list[EventRow]]:
    found: dict[bytes, list[EventRow]] = defaultdict(list)
    for each in chronicle.event_rows:
        if each.call_id != NO_CALL:
            found[each.call_id].append(each)
    return found


def begun_and_ended(chronicle: Chronicle) -> tuple[Counter[bytes], Counter[bytes]]:
    spans = Counter(Span(*row).call_id for row in chronicle.spans)
    begun, ended = Counter(spans), Counter(spans)
    for each in chronicle.event_rows:
        begun[each.call_id] += each.kind == Kind.ACCEPTED
        ended[each.call_id] += each.kind in ENDS
    return +begun, +ended


def check_order(chronicle: Chronicle) -> None:
    """Check that the rows of each request are in order of time."""
    for span in map(Span._make, chronicle.spans):
        assert span.first_at <= span.second_at <= span.third_at
    for event_rows in by_request(chronicle).values():
        instants = [each.at for each in event_rows]
        assert instants == sorted(instants)
