"""What a copy says about the log that it is a copy of: `shipped.json`, beside its segments.

A log that is copied while it is written ends anywhere. Whoever copies it notes up to where it has
been copied, after that has been done. So a reader of the copy knows what must be there, and whether
more may come.
"""

from __future__ import annotations

import json
from typing import Any, Final, NamedTuple

SHIPPED_NAME: Final = "shipped.json"
SHIPPED_SIZE_MAX: Final = 4096


class Shipped(NamedTuple):
    """Up to where a log has been copied: `offset` bytes of its segment `segment`.

    `is_ended`: nothing will be added to it any more. `torn` says what is wrong with its end.
    """

    segment: int
    offset: int
    is_ended: bool
    torn: str = ""


def encode_shipped(shipped: Shipped) -> bytes:
    return json.dumps(shipped._asdict()).encode() + b"\n"


def decode_shipped(data: bytes) -> Shipped | None:
    """Return what a note says; None for one that cannot be read, as if there were none."""
    try:
        record: dict[str, Any] = json.loads(data)
        shipped = Shipped(*(record[name] for name in Shipped._fields))
    except (ValueError, TypeError, KeyError):
        return None
    return shipped if [*map(type, shipped)] == [int, int, bool, str] else None
