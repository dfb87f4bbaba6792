"""What can be seen of a server's tables."""

from __future__ import annotations


class Why:
    """Why messages are dropped: the words of counters, notes and journals."""

    MALFORMED = "malformed"
    LOST = "lost"  # requests whose client was lost before they began
