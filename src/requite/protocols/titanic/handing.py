"""Handing out stored replies: owners in turn, and a bounded number of bytes at once.

A few bytes (a ticket) ask for a reply of megabytes, any number of times. So the replies that are
being read from the log, or were answered in this turn, are bounded, per caller and in all. Other
requests for replies wait; the next turn serves them, after the shell has seen the answers.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import Any, Final

from requite.protocols.titanic.core import Core
from requite.protocols.titanic.lines import Lines
from requite.protocols.titanic.requests import ANSWERED, DurableRequest
from requite.protocols.titanic.tickets import ForReply
from requite.protocols.titanic.wire import encode_reply

HAND_OUT: Final = "hand out"
SIZE_MAX: Final = 16 << 20
"""Bytes of replies that are handed out at once; the last of them may exceed it."""
OWNER_SIZE_MAX: Final = 4 << 20
"""The same for the replies that one principal collects."""


class Handing:
    """Answers requests for stored replies; `gone(token, request)` answers one whose reply was
    removed while it waited."""

    def __init__(self, core: Core, gone: Callable[[Any, DurableRequest], None]) -> None:
        self._core = core
        self._gone = gone
        self._lines: Lines[bytes, ForReply] = Lines()
        self._sizes: Counter[bytes] = Counter()  # bytes being handed out, by owner
        self._answered: list[ForReply] = []  # in this turn

    @property
    def is_idle(self) -> bool:
        """Whether nobody waits for a reply."""
        return not self._lines.length

    def hand_out(self, ticket: ForReply) -> None:
        """Answer with a stored reply, now or later."""
        self._lines.push(ticket.owner, ticket)
        self.go_on()

    def go_on(self, _now: float = 0.0) -> None:
        """Answer those that wait, as far as the limits allow."""
        while self._lines.length and self._sizes.total() < SIZE_MAX:
            ticket = self._lines.pop(self._may_have_more)
            if ticket is None:
                return
            request = ticket.request
            if request.state is not ANSWERED:
                self._gone(ticket.token, request)
                continue
            self._sizes[ticket.owner] += ticket.size
            if request.reply is None:
                self._core.load(ticket, request.reply_location)
            else:
                answer = encode_reply(request.reply, is_negative=request.is_negative)
                self._core.answer(ticket.token, *answer)
                self._answered.append(ticket)

    def came_back(self, ticket: ForReply) -> None:
        """Handle the end of a `Load`, which is answered in this turn."""
        self._answered.append(ticket)

    def end_turn(self, now: float) -> None:
        """Count the answers of this turn no more, and serve others in the next one."""
        for ticket in self._answered:
            self._sizes[ticket.owner] -= ticket.size
            if not self._sizes[ticket.owner]:
                del self._sizes[ticket.owner]
        if self._answered and self._lines.length:
            self._core.timers.set(HAND_OUT, now)
        self._answered.clear()

    def _may_have_more(self, owner: bytes) -> bool:
        return self._sizes[owner] < OWNER_SIZE_MAX
