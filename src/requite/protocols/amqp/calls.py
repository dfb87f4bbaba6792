"""The nouns of a caller: a call that is outstanding, and what can be seen of its tables."""

from __future__ import annotations

from typing import Any, NamedTuple

from requite.engine import Submit


class PendingCall:
    """One call. `request_id` is its slot and sequence number; `message_id` names it in all tries.

    `tries` counts how often it was published, `is_sent` tells whether a try is out now, and
    `due_at` is when to look at it next. Of partial replies: `source` is who sends them, `index` the
    number that is next, `joined` what has come of those that the user does not take one by one.
    `loss` tells what became of the last try that was lost. The rest is for the journal.
    """

    __slots__ = (
        "asked",
        "body",
        "call_id",
        "due_at",
        "index",
        "is_sent",
        "is_told",
        "joined",
        "loss",
        "message_id",
        "request_id",
        "sent_at",
        "source",
        "submitted_at",
        "tries",
    )

    def __init__(self, asked: Submit, call_id: bytes, now: float) -> None:
        frames = asked.frames
        self.asked = asked
        self.body = frames[0] if len(frames) == 1 else b"".join(frames)
        self.call_id = call_id
        self.message_id = call_id.hex()
        self.request_id = -1
        self.submitted_at = self.sent_at = now
        self.due_at = asked.deadline
        self.tries = 0
        self.is_sent = False
        self.source: tuple[Any, Any] | None = None
        self.index = 0
        self.joined: list[bytes] = []
        self.loss = ""
        self.is_told = False

    def __repr__(self) -> str:
        return f"<PendingCall {self.message_id}>"


class CallerSnapshot(NamedTuple):
    """A caller's tables, as counts.

    `is_ready`: requests can be published now. Calls: `held` wait for that, `sent` for their reply;
    `unconfirmed` ones have not been confirmed by RabbitMQ. Since the beginning: calls sent again,
    requests that were `returned`, and replies ignored because they were `stray`: late, repeated, or
    asked for by nobody.
    """

    is_ready: bool
    held: int
    sent: int
    unconfirmed: int
    resent: int
    returned: int
    stray: int
    stopped: bool
