"""The reasons for which a server drops messages."""

from __future__ import annotations


class Why:
    """Reasons for dropping messages, as counters, notes and journals have them."""

    MALFORMED = "malformed"
    LOST = "lost"  # requests whose client was lost before they began
