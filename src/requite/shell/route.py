"""Where to dial next, and when: the address list, the pauses, and what went wrong last.

Shared by the shells; it dials nobody itself. All connections go to the `current` address. When one
fails, or ends, the next address has its turn; when each has failed in a row, there is a pause.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from requite.errors import TransportError
from requite.shell.link import Link
from requite.transport.address import Address
from requite.transport.backoff import Backoff


class Route:
    """The way to a service that has one or more `addresses` (none: it is never asked)."""

    def __init__(
        self, addresses: Sequence[Address], backoff: Backoff, clock: Callable[[], float]
    ) -> None:
        self.addresses = tuple(addresses)
        self._backoff = backoff
        self._clock = clock
        self._at = 0
        self._failures = 0  # in a row
        self._links: dict[Link, tuple[Address, float]] = {}  # dialled where, and when
        self._trouble = ""

    @property
    def current(self) -> Address:
        """The address to dial now."""
        return self.addresses[self._at]

    @property
    def trouble(self) -> str:
        """What keeps us from being connected, for the message of an error; "" if nothing does."""
        if any(link.joined for link in self._links):
            return ""
        if self._links:
            return f"{self._names()} has not completed the handshake yet"
        return self._trouble or f"{self._names()} has not answered yet"

    def pause_s(self) -> float:
        """Return how long to wait before dialling; 0 unless all addresses have just failed."""
        if not self._failures or self._failures % len(self.addresses):
            return 0.0
        return self._backoff.next_s()

    def failed(self, address: Address, error: TransportError) -> None:
        """Note that nobody could be reached at an address."""
        self._go_on_from(address, str(error))
        self._failures += 1

    def opened(self, address: Address, link: Link) -> None:
        """Note that a connection stands."""
        self._links[link] = (address, self._clock())

    def ended(self, link: Link, reason: str) -> None:
        """Note that it has ended; one that ended in its handshake counts as a failure."""
        if link not in self._links:
            return
        address, opened_at = self._links.pop(link)
        self._go_on_from(address, f"the connection to {address} ended: {reason}")
        if link.joined:
            self._backoff.note_life(self._clock() - opened_at)
            self._failures = 0
        else:
            self._failures += 1

    def _go_on_from(self, address: Address, trouble: str) -> None:
        self._trouble = trouble
        if address == self.current:  # several connections may end at once
            self._at = (self._at + 1) % len(self.addresses)

    def _names(self) -> str:
        return " or ".join(map(str, self.addresses))
