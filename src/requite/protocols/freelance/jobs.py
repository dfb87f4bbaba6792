"""The reasons for which a server drops messages."""

from __future__ import annotations

from typing import Final


class Why:
    """Reasons for dropping messages, as counters, notes and journals have them."""

    MALFORMED: Final = "malformed"
    LOST: Final = "lost"  # requests whose client was lost before they began
