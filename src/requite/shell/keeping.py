"""Connections that a shell keeps up by itself: one per address, dialled again whenever it ends.

Protocols without a broker know several addresses at a time, and all of them are in use (SP). Their
engines ask for no connection; they are told who has come and gone. Shared by the shells; nothing
here dials.
"""

from __future__ import annotations

from collections.abc import Callable
from math import inf
from typing import Any, NamedTuple, NoReturn

from requite.errors import LocalViolation, TransportError
from requite.framing.base import Framing
from requite.shell.link import Link
from requite.transport.address import Address
from requite.transport.backoff import LIVED_S, Backoff
from requite.transport.tls import TlsSettings


class Endpoint(NamedTuple):
    """An address to dial or to listen at, and what is spoken there.

    `place` is told to the engine with every peer that comes by this address. `tls` is for addresses
    that are secure.
    """

    address: Address
    make_framing: Callable[[], Framing]
    place: Any = None
    tls: TlsSettings | None = None


class Kept:
    """The way to one endpoint, and the one connection to it.

    When it ends it is dialled again at once, unless it was short: a peer that hangs up on everybody
    must not be dialled in a tight loop, so the pauses grow then as if it had not answered.
    """

    def __init__(self, endpoint: Endpoint, backoff: Backoff, clock: Callable[[], float]) -> None:
        self.endpoint = endpoint
        self._backoff = backoff
        self._clock = clock
        self._opened_at = 0.0
        self._link: Link | None = None
        self._in_vain = False  # the last connection was none, or short
        self._was_refused = False  # it ended in its handshake
        self._trouble = f"{endpoint.address} has not answered yet"

    @property
    def current(self) -> Address:
        """The address to dial."""
        return self.endpoint.address

    @property
    def trouble(self) -> str:
        """What keeps us from being connected, for the message of an error; "" if nothing does.

        While a handshake goes on, why the last one came to nothing tells more than that.
        """
        if self._link is None or (self._was_refused and not self._link.joined):
            return self._trouble
        if self._link.joined:
            return ""
        return f"{self.current} has not completed the handshake yet"

    def pause_s(self) -> float:
        """Return how long to wait before dialling."""
        return self._backoff.next_s() if self._in_vain else 0.0

    def patience_s(self) -> float:
        """Return how long to wait for an answer: as long as the dialler likes, for there is no
        other address to go on to."""
        return inf

    def failed(self, _address: Address, error: TransportError) -> None:
        """Note that nobody could be reached."""
        self._trouble = str(error)
        self._in_vain = True
        self._was_refused = False

    def opened(self, _address: Address, link: Link) -> None:
        """Note that the connection stands."""
        self._link = link
        self._opened_at = self._clock()

    def ended(self, link: Link, reason: str) -> bool:
        """Note that a link has ended, and return whether it was this connection."""
        if link is not self._link:
            return False
        lived_s = self._clock() - self._opened_at if link.joined else 0.0
        self._link = None
        self._backoff.note_life(lived_s)
        self._in_vain = lived_s < LIVED_S
        self._was_refused = not link.joined
        self._trouble = f"the connection to {self.current} ended: {reason}"
        return True


def no_framing() -> NoReturn:
    """Stand in for `make_framing` where every endpoint has its own."""
    raise LocalViolation("this shell has no framing but those of its endpoints")
