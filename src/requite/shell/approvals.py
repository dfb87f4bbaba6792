"""Accepted links that wait for the hook of the user (`requite.access.authentication`).

A link waits after its handshake is complete and before the last output of it is sent. So a peer
whose protocol waits for that output sends nothing more. Other peers may have sent messages: these
are held back, and reading is paused, after which a stream delivers at most one more chunk.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TypeAlias

from requite.access.authentication import Ask, Authentication
from requite.errors import RemoteViolation
from requite.framing.base import Message
from requite.principal import INSIDE
from requite.shell.link import Link, Pause

Decided: TypeAlias = Callable[[Link, RemoteViolation | None], object]
"""Gets a link that has waited, and why it is refused; None: it is admitted."""


class _Held:
    """What a link has sent, and how to withdraw the question about it."""

    __slots__ = ("chunk", "messages", "withdraw")

    def __init__(self, messages: list[Message], withdraw: Callable[[], object]) -> None:
        self.messages = messages
        self.withdraw = withdraw
        self.chunk = b""


class Approvals:
    """The links that wait; none if there is nobody to `ask`."""

    __slots__ = ("_ask", "_held")

    def __init__(self, ask: Ask | None) -> None:
        self._ask = ask
        self._held: dict[Link, _Held] = {}

    def wait(self, link: Link, messages: list[Message], decided: Decided) -> bool:
        """Ask whether to admit a link, and hold back its messages; `decided` gets the answer.
        Return False, without a question, if nobody is asked about it."""
        if self._ask is None or link.principal is INSIDE:
            return False
        peer = Authentication(
            link.principal.name,
            link.credential,
            link.stream.peer_name,
            link.framing.peer_identity,
        )
        link.pause(Pause.APPROVAL)
        self._held[link] = _Held(messages, self._ask(peer, partial(decided, link)))
        return True

    def append(self, link: Link, chunk: bytes) -> bool:
        """Hold back more bytes of a link; return False if it does not wait."""
        held = self._held.get(link)
        if held is None:
            return False
        held.chunk += chunk
        return True

    def take(self, link: Link) -> tuple[list[Message], bytes]:
        """Remove a link that has its answer; return what it has sent: messages, then bytes."""
        held = self._held.pop(link)
        return held.messages, held.chunk

    def forget(self, link: Link) -> None:
        """Remove a link that has ended, and withdraw the question about it."""
        held = self._held.pop(link, None)
        if held is not None:
            held.withdraw()
