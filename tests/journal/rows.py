"""Example rows and Hypothesis strategies for the tests of the journal."""

from __future__ import annotations

from math import inf

from hypothesis import strategies as st

from requite.chronicle import CALL_ID_SIZE, EventRow, Kind, SpanRow
from requite.request import Status

CALL = bytes(range(16))
SPAN: SpanRow = (1.0, 2.0, 3.0, 4.0, CALL, b"echo", b"worker-1", 5, 6)
# No two cells of these rows are equal, so a test detects swapped columns.
SPANS: list[SpanRow] = [
    (1.0, 1.5, 2.0, inf, CALL, b"echo", b"worker-1", 10, 20),
    (3.0, 3.25, 3.5, 8.0, bytes(range(16, 32)), b"sum", b"worker-2", 30, 40),
]
EVENTS: list[EventRow] = [
    EventRow(5.0, Kind.ACCEPTED, CALL, b"echo", size=7, value=9.0),
    EventRow(
        6.0,
        Kind.ANSWERED,
        CALL,
        b"echo",
        b"worker-1",
        attempt=2,
        outcome=Status.FAILED,
        error="RemoteFailure",
        reason="out of stock",
        size=11,
        busy=12,
        capacity=13,
    ),
]

_INSTANTS = st.floats(0, 1e9)
_NAMES = st.sampled_from([b"", b"echo", b"sum", b"\xff\x00"]) | st.binary(max_size=40)
_TEXTS = st.sampled_from(["", "no"]) | st.text(max_size=40)
_SIZES = st.integers(0, (1 << 32) - 1)
_CALLS = st.binary(min_size=CALL_ID_SIZE, max_size=CALL_ID_SIZE)

span_rows: st.SearchStrategy[SpanRow] = st.tuples(
    _INSTANTS,
    _INSTANTS,
    _INSTANTS,
    _INSTANTS | st.just(inf),
    _CALLS,
    _NAMES,
    _NAMES,
    _SIZES,
    _SIZES,
)
event_rows: st.SearchStrategy[EventRow] = st.builds(
    EventRow,
    at=_INSTANTS,
    kind=st.sampled_from(Kind),
    call_id=_CALLS,
    service=_NAMES,
    worker=_NAMES,
    attempt=st.integers(0, (1 << 16) - 1),
    outcome=st.sampled_from([*Status, 255]),
    error=_TEXTS,
    reason=_TEXTS,
    size=_SIZES,
    value=_INSTANTS | st.just(inf),
    busy=_SIZES,
    capacity=_SIZES,
)
