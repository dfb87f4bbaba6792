"""The `traceparent` header of calls that belong to no trace.

    traceparent   00-<trace id, 32 hex digits>-<parent id, 16 hex digits>-<flags>

Each of them begins a new trace. Its ids are a digest of the call id, whose first half is random per
start of a client, so simulated runs reproduce them. The flags are `01` (sampled) if the client
writes a journal, which then has the call, else `00`.

Source: W3C, "Trace Context", Level 1, section 3.2 ("Traceparent Header").
"""

from __future__ import annotations

from hashlib import blake2b
from typing import Final

_TRACE_DIGITS: Final = 32
_IDS_BYTES: Final = 24  # both ids; that one of them is all zeros, which is invalid, never happens


def traceparent(call_id: bytes, *, is_sampled: bool) -> str:
    """Return the `traceparent` header of the trace that a call begins."""
    ids = blake2b(call_id, digest_size=_IDS_BYTES).hexdigest()
    return f"00-{ids[:_TRACE_DIGITS]}-{ids[_TRACE_DIGITS:]}-{'01' if is_sampled else '00'}"
