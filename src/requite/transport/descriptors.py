"""Whether file descriptors run short: each connection takes one, and so does each open file.

The system gives out the lowest number that is free. So the number that the next file gets tells how
many are in use, and nothing has to be counted.
"""

from __future__ import annotations

import errno
import os
import resource
from typing import Final

from requite.transport.sockets import why

# How accepting a connection fails where only the end of others helps.
EXHAUSTED: Final = (errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM)

# What is left for files (a journal, the segments of a log, names to be resolved) when connections
# are refused: one in sixteen, within bounds.
_RESERVE_PART: Final = 16
_RESERVE_MIN: Final = 4
_RESERVE_MAX: Final = 64
_REMEDY: Final = "raise the limit with `ulimit -n` (LimitNOFILE= in a unit of systemd)"


def limit() -> int:
    """Return how many descriptors this process may have (RLIMIT_NOFILE, the soft limit)."""
    return resource.getrlimit(resource.RLIMIT_NOFILE)[0]


def is_of_reserve(descriptor: int) -> bool:
    """Whether a connection with this descriptor takes one that should be left for files."""
    allowed = limit()
    if allowed == resource.RLIM_INFINITY:
        return False
    return descriptor >= allowed - min(max(allowed // _RESERVE_PART, _RESERVE_MIN), _RESERVE_MAX)


def shortage(leaving: int = 0) -> str:
    """Return what to say when too few descriptors are left for another connection; "" while there
    are enough. `leaving` connections are being closed, and give theirs back soon."""
    allowed = limit()
    in_use = _in_use(allowed)
    if not is_of_reserve(in_use - leaving):
        return ""
    return f"{in_use:,} of {allowed:,} file descriptors are in use (RLIMIT_NOFILE); {_REMEDY}"


def exhaustion(error: OSError) -> str:
    """Return what to say of an error out of `EXHAUSTED`: the limit that was reached."""
    if error.errno != errno.EMFILE:
        return why(error)
    return f"all {limit():,} file descriptors are in use (RLIMIT_NOFILE); {_REMEDY}"


def _in_use(allowed: int) -> int:
    try:
        lowest = os.open(os.devnull, os.O_RDONLY | os.O_CLOEXEC)
    except OSError as error:  # there may be no such file in a sandbox, and then nothing is known
        return allowed if error.errno in EXHAUSTED else 0
    os.close(lowest)
    return lowest
