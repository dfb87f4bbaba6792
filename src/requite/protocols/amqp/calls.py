"""An outstanding call of a caller."""

from __future__ import annotations

from typing import Any

from requite.core import calls
from requite.engine import Submit

Source = tuple[Any, Any, Any]
"""The run of a request that a reply belongs to: worker id, attempt and run number."""


class PendingCall(calls.PendingCall):
    """One call. `request_id` is its slot and sequence number; `message_id` is the same for all
    attempts.

    `is_sent`: an attempt is in flight. `index` counts partial replies. With `partials` the user
    gets them, all of one `source`; else `pieces` buffers those of each source.
    """

    __slots__ = (
        "body",
        "idempotency_key",
        "index",
        "is_sent",
        "message_id",
        "partials",
        "pieces",
        "request_id",
        "source",
    )

    def __init__(self, asked: Submit, call_id: bytes, now: float) -> None:
        self.take_from(asked, now)
        frames = self.frames
        self.body = frames[0] if len(frames) == 1 else b"".join(frames)
        self.idempotency_key = asked.idempotency_key
        self.partials = asked.partials
        self.call_id = call_id
        self.message_id = call_id.hex()
        self.request_id = -1
        self.is_sent = False
        self.index = 0
        self.source: Source | None = None
        self.pieces: dict[Source, list[bytes]] = {}

    def pieces_of(self, source: Source) -> int:
        """Return how many partial replies of a run have arrived in order."""
        return self.index if self.partials else len(self.pieces.get(source, ()))

    def __repr__(self) -> str:
        return f"<PendingCall {self.message_id}>"
