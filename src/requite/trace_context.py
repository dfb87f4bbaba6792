"""W3C trace context: the trace that a request belongs to, and its parent in that trace.

    on the wire of AMQP, and for users   00-<trace id, 32 hex digits>-<parent id, 16>-<flags, 2>
    in engines, on MDP 0.3 and on disk   trace id (16 bytes), parent id (8), flags (1); empty: none

The parent is the span of the call at its client, in all attempts. Bit 0 of the flags says that the
trace is sampled. `tracestate` is not carried.

Source: W3C, "Trace Context", Level 1, section 3.2 ("Traceparent Header").
"""

from __future__ import annotations

import re
from typing import Final

TRACE_SIZE: Final = 25
NO_TRACE: Final = b""
_SAMPLED: Final = 1
_TRACEPARENT: Final = re.compile("([0-9a-f]{2})-([0-9a-f]{32})-([0-9a-f]{16})-([0-9a-f]{2})(-.*)?")
_INVALID_VERSION: Final = "ff"
_FIRST_VERSION: Final = "00"
_NO_TRACE_ID: Final = bytes(16)
_NO_PARENT_ID: Final = bytes(8)


def is_valid(trace: bytes) -> bool:
    """Whether a trace context has the right size and ids that are not all zeros."""
    return len(trace) == TRACE_SIZE and trace[:16] != _NO_TRACE_ID and trace[16:24] != _NO_PARENT_ID


def is_sampled(trace: bytes) -> bool:
    """Whether the trace is recorded; False without a trace."""
    return len(trace) == TRACE_SIZE and bool(trace[24] & _SAMPLED)


def decode_traceparent(text: str) -> bytes:
    """Return the trace context of a `traceparent` header; `NO_TRACE` for one that is malformed, as
    the standard demands. Later versions may append fields, which are ignored."""
    match = _TRACEPARENT.fullmatch(text)
    if match is None or match[1] == _INVALID_VERSION or (match[1] == _FIRST_VERSION and match[5]):
        return NO_TRACE
    trace = bytes.fromhex(match[2] + match[3] + match[4])
    return trace if is_valid(trace) else NO_TRACE


def trace_id(trace: bytes) -> str:
    """Return the trace id of a trace context, in hex; "" for `NO_TRACE`."""
    return trace[:16].hex()


def encode_traceparent(trace: bytes) -> str:
    """Return the `traceparent` header of a trace context; "" for `NO_TRACE`."""
    if not trace:
        return ""
    digits = trace.hex()
    return f"00-{digits[:32]}-{digits[32:48]}-{digits[48:]}"
