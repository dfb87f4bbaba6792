"""The note of a copy about its original log: `shipped.json`, next to its segments.

A copy of a log that is being written may end anywhere. The copying process records how far it has
copied, after it has done so. So a reader of the copy knows which bytes must exist, and whether more
may follow.
"""

from __future__ import annotations

import json
from typing import Any, Final, NamedTuple

SHIPPED_NAME: Final = "shipped.json"
SHIPPED_SIZE_MAX: Final = 4096


class Shipped(NamedTuple):
    """The end of a copy: `offset` bytes of the segment `segment`.

    `is_ended`: nothing will be added to the log. `torn` describes the damage at its end.
    """

    segment: int
    offset: int
    is_ended: bool
    torn: str = ""


def encode_shipped(shipped: Shipped) -> bytes:
    return json.dumps(shipped._asdict()).encode() + b"\n"


def decode_shipped(data: bytes) -> Shipped | None:
    """Decode a note; return None for an invalid one, which counts as absent."""
    try:
        record: dict[str, Any] = json.loads(data)
        shipped = Shipped(*(record[name] for name in Shipped._fields))
    except (ValueError, TypeError, KeyError):
        return None
    return shipped if [*map(type, shipped)] == [int, int, bool, str] else None
