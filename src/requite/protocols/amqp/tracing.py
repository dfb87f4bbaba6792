"""W3C trace context: how the trace is called that a call begins.

    traceparent   00-<trace id, 32 hex digits>-<parent id, 16 hex digits>-<flags>

Each call begins a trace of its own. Its ids are a digest of the call's id, whose first half is
random per start of a client: as good as random, and the same whenever a run is repeated. The flags
say `01` (sampled) where the client keeps a journal, in which the call can be found, else `00`.

Source: W3C, "Trace Context", Level 1, section 3.2 ("Traceparent Header").
"""

from __future__ import annotations

from hashlib import blake2b
from typing import Final

_TRACE_DIGITS: Final = 32
_IDS_BYTES: Final = 24  # both ids; that one of them is all zeros, which is invalid, never happens


def traceparent(call_id: bytes, *, is_sampled: bool) -> str:
    """Return the header of the trace that a call begins."""
    ids = blake2b(call_id, digest_size=_IDS_BYTES).hexdigest()
    return f"00-{ids[:_TRACE_DIGITS]}-{ids[_TRACE_DIGITS:]}-{'01' if is_sampled else '00'}"
