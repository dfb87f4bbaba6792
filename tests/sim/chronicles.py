"""What is in a chronicle, for tests that compare it with itself."""

from __future__ import annotations

from collections import Counter, defaultdict

from requite.chronicle import ENDS, NO_CALL, Chronicle, Flight, Happening, Kind


def by_request(chronicle: Chronicle) -> dict[bytes, list[Happening]]:
    found: dict[bytes, list[Happening]] = defaultdict(list)
    for each in chronicle.happenings:
        if each.call_id != NO_CALL:
            found[each.call_id].append(each)
    return found


def begun_and_ended(chronicle: Chronicle) -> tuple[Counter[bytes], Counter[bytes]]:
    flights = Counter(Flight(*row).call_id for row in chronicle.flights)
    begun, ended = Counter(flights), Counter(flights)
    for each in chronicle.happenings:
        begun[each.call_id] += each.kind == Kind.ACCEPTED
        ended[each.call_id] += each.kind in ENDS
    return +begun, +ended


def check_order(chronicle: Chronicle) -> None:
    """Rows are in the order of their instants."""
    for flight in map(Flight._make, chronicle.flights):
        assert flight.first_at <= flight.second_at <= flight.third_at
    for happenings in by_request(chronicle).values():
        instants = [each.at for each in happenings]
        assert instants == sorted(instants)
