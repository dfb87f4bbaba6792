"""Detect a shortage of file descriptors, of which each connection and each open file takes one.

The system assigns the lowest free number, so the number of a newly opened file is about the count
of those in use; nothing has to be counted.
"""

from __future__ import annotations

import errno
import os
import resource
from typing import Final

from requite.transport.sockets import why

# Errors of accepting a connection that persist until other connections end.
EXHAUSTED: Final = (errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM)

# Descriptors reserved for files (a journal, segments of a log, DNS lookups): one in sixteen, within
# bounds. Connections beyond that are refused.
_RESERVE_PART: Final = 16
_RESERVE_MIN: Final = 4
_RESERVE_MAX: Final = 64
_REMEDY: Final = "raise the limit with `ulimit -n` (LimitNOFILE= in a systemd unit)"


def limit() -> int:
    """Return the maximum number of descriptors of this process (soft RLIMIT_NOFILE)."""
    return resource.getrlimit(resource.RLIMIT_NOFILE)[0]


def is_of_reserve(descriptor: int) -> bool:
    """Whether a connection with this descriptor uses the reserve for files."""
    allowed = limit()
    if allowed == resource.RLIM_INFINITY:
        return False
    return descriptor >= allowed - min(max(allowed // _RESERVE_PART, _RESERVE_MIN), _RESERVE_MAX)


def shortage(leaving: int = 0) -> str:
    """Return a message if too few descriptors are left for another connection, else "". `leaving`:
    connections that are being closed and free theirs soon."""
    allowed = limit()
    in_use = _in_use(allowed)
    if not is_of_reserve(in_use - leaving):
        return ""
    return f"{in_use:,} of {allowed:,} file descriptors are in use (RLIMIT_NOFILE); {_REMEDY}"


def exhaustion(error: OSError) -> str:
    """Return a message for an error in `EXHAUSTED`: the limit that was reached."""
    if error.errno != errno.EMFILE:
        return why(error)
    return f"all {limit():,} file descriptors are in use (RLIMIT_NOFILE); {_REMEDY}"


def _in_use(allowed: int) -> int:
    try:
        lowest = os.open(os.devnull, os.O_RDONLY | os.O_CLOEXEC)
    except OSError as error:  # a sandbox may lack the file; then the count is unknown
        return allowed if error.errno in EXHAUSTED else 0
    os.close(lowest)
    return lowest
